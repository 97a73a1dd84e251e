/** Seeds that have shown a defect of the project, run first. Each says what it was. */
export const REGRESSIONS: readonly { readonly seed: number; readonly what: string }[] = [
  { seed: 8, what: "after a restore of the core, the watch's copy of the lost history became the base of a write" },
  { seed: 26, what: "counts of the old selector were written under the hash of the new one" },
  { seed: 32, what: "a protector that was made again was taken for one that nobody had counted" },
  { seed: 40, what: "counts of the old selector, with a deletion under way" },
  {
    seed: 400,
    what: "busy after an outage of the core, for a protector that was deleted just then, is no unjustified refusal",
  },
];
