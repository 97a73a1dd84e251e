/** The `reason` of the Events, and a metric label. */
export const CHANGES = [
  "ProtectorCreated",
  "ProtectorDeleted",
  "ProtectorReleased",
  "PromiseRaised",
  "PromiseLowered",
  "SpecChanged",
  "SuspensionStarted",
  "SuspensionEnded",
  "HoldStarted",
  "HoldEnded",
] as const;
