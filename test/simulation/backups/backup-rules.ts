/** What worlds with copies of protectors must have seen. */
export const COPY_RULES = [
  // What befalls protectors.
  ...["a protector vanishes", "torn away", "stripped and deleted", "the kind is deleted", "a core is emptied"],
  ...["a protector is released", "made again by hand"],
  // What befalls those who copy and read.
  ...["a cell out of reach", "a core out of reach", "two leaders make the same chunk"],
  "a restored cell brings back old ones",
  // What the aggregators tell.
  ...["copied", "copyFailed", "vanished", "recreated", "recreateFailed", "acknowledged", "coreWentBack"],
  // What replicas know.
  "refused by a replica that started after the loss",
  "let go by a replica that nobody has told of a loss",
].map((rule) => `copies: ${rule}`);
