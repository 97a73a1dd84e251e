/** Seeds that have shown a defect of the project, run first. Each says what it was. */
import type { FeatureKind } from "./world/features.ts";

export interface Regression {
  readonly seed: number;
  /** These and no others, whatever the seed draws by now: features that came later would make another history of it. */
  readonly features: readonly FeatureKind[];
  readonly what: string;
}

export const REGRESSIONS: readonly Regression[] = [
  {
    seed: 8,
    features: [],
    what: "after a restore of the core, the watch's copy of the lost history became the base of a write",
  },
  { seed: 26, features: [], what: "counts of the old selector were written under the hash of the new one" },
  { seed: 32, features: [], what: "a protector that was made again was taken for one that nobody had counted" },
  { seed: 40, features: [], what: "counts of the old selector, with a deletion under way" },
  {
    seed: 400,
    features: [],
    what: "busy after an outage of the core, for a protector that was deleted just then, is no unjustified refusal",
  },
  {
    seed: 10096,
    features: [],
    what: "an outage whose last failed try came within its first second was none, and a stream was resumed behind a restore",
  },
  {
    seed: 10619,
    features: ["countedGate"],
    what: "a counted condition that was lost before a relist had shown it was never set again",
  },
  {
    seed: 60004,
    features: ["generator"],
    what: "a generator that lagged released the protector of a Deployment for another of its name that had been deleted before",
  },
  {
    seed: 1108,
    features: ["suspend"],
    what: "a pending pod that could not be pinned was let go seconds later, when it had become available",
  },
  {
    seed: 1098,
    features: ["inPlace"],
    what: "the record of a change that was over stayed for ever where its protector did not count the pod any more",
  },
  {
    seed: 900020,
    features: ["shards"],
    what: "of two pods of one name in two shards, a protector that came while one shard was behind counted the newer one only",
  },
  {
    seed: 910008,
    features: ["copies"],
    what: "a replica that started knew a protector that was over, whose copy a restored cell had brought back, instead of its successor",
  },
  {
    seed: 910027,
    features: ["copies"],
    what: "a copy that a leader on its way out had written outlived its protector",
  },
  {
    seed: 910107,
    features: ["copies"],
    what: "an eviction that waited for a core went by what its pod had been before, and its protector was gone",
  },
  {
    seed: 1235,
    features: ["generator"],
    what: "a protector that was deleted between its making and a list that came just then was never made again",
  },
  {
    seed: 37539,
    features: ["probe", "suspend"],
    what: "a suspension that ended while another core was slow let a pod go whose owner nobody had asked",
  },
  {
    seed: 38475,
    features: ["countedGate"],
    what: "a gate was opened in the middle of the first list of protectors, the last of which counted its pod",
  },
  {
    seed: 60187,
    features: ["accidents"],
    what: "somebody who knew of nothing was the first to write to a restored core, and nobody missed what was reserved there",
  },
  {
    seed: 60229,
    features: ["accidents"],
    what: "the same by an aggregator, while all replicas stood still",
  },
];
