import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { parsePod } from "../../../shared/schema/pod.ts";
import { InPlaceChanges } from "./in-place-changes.ts";

type Json = Readonly<Record<string, unknown>>;

interface Case {
  readonly generation?: number;
  readonly observed?: number | undefined;
  readonly image?: string;
  readonly running?: string;
  readonly imageID?: string;
  readonly conditions?: Json[];
  readonly spec?: Json;
  readonly status?: Json;
}

const DIGEST = `sha256:${"a".repeat(64)}`;
const pending = (reason: string, observedGeneration?: number): Json => ({
  type: "PodResizePending",
  status: "True",
  reason,
  observedGeneration,
});
/** For as long as a container uses more memory than its new limit. */
const failing: Json = { type: "PodResizeInProgress", status: "True", reason: "Error" };
const sidecar = (image: string): Json => ({ initContainers: [{ name: "proxy", image, restartPolicy: "Always" }] });

/** A pod of generation 2 that runs what it should, but for what the case says. */
function progress(one: Case): string {
  const { generation = 2, observed = 2, image = "app:2", running = image, imageID = "", conditions = [] } = one;
  const raw = {
    metadata: { namespace: "ns", name: "a", uid: "u", resourceVersion: "5", generation },
    spec: { containers: [{ name: "app", image }], ...one.spec },
    status: {
      observedGeneration: "observed" in one ? one.observed : observed,
      conditions,
      containerStatuses: [{ name: "app", image: running, imageID }],
      ...one.status,
    },
  };
  const changes = new InPlaceChanges();
  const pod = parsePod(raw);
  changes.see(raw, pod);
  if (changes.isDeferred(pod)) return "deferred";
  if (changes.declinedGeneration(pod) === generation) return "declined";
  if (changes.unconfirmedGeneration(pod) === generation) return "unconfirmed";
  return changes.settledGeneration(pod) === generation ? "settled" : "under way";
}

test.each<[string, Case, string]>([
  ["never changed, whatever its status", { generation: 1, observed: 0, running: "other" }, "settled"],
  ["a server before 1.33, which gives pods no generation", { generation: 0, observed: undefined }, "settled"],
  ["the same, and the old image", { generation: 0, observed: undefined, running: "app:1" }, "unconfirmed"],
  ["the status has caught up", {}, "settled"],
  ["the kubelet has not seen it", { observed: 1 }, "under way"],
  ["seen, but the old image still runs", { running: "app:1" }, "unconfirmed"],
  ["a server that reports no observed generation", { observed: undefined }, "settled"],
  ["the same, and the old image", { observed: undefined, running: "app:1" }, "unconfirmed"],
  ["the image with its defaults", { image: "nginx", running: "docker.io/library/nginx:latest" }, "settled"],
  ["a registry with a port", { image: "r:5000/a", running: "r:5000/a:latest" }, "settled"],
  ["an image by digest", { image: `app@${DIGEST}`, running: "app:2", imageID: `docker.io/app@${DIGEST}` }, "settled"],
  ["another digest", { image: `app@${DIGEST}`, running: "app:2", imageID: "app@sha256:b" }, "unconfirmed"],
  ["a deadline, which ends the pod", { spec: { activeDeadlineSeconds: 1 } }, "under way"],
  ["no status yet", { status: { containerStatuses: null } }, "unconfirmed"],
  ["a sidecar still runs the old image", { spec: sidecar("p:2"), status: proxy("p:1") }, "unconfirmed"],
  ["a sidecar runs the new one", { spec: sidecar("p:2"), status: proxy("p:2") }, "settled"],
  ["an init container that has run", { spec: { initContainers: [{ name: "m", image: "m:2" }] } }, "settled"],
  ["a resize under way", { conditions: [{ type: "PodResizeInProgress", status: "True" }] }, "under way"],
  ["a resize that fails after its restarts", { conditions: [failing] }, "settled"],
  ["the same, and another one is deferred", { conditions: [failing, pending("Deferred")] }, "deferred"],
  ["a resize that has ended", { conditions: [{ type: "PodResizeInProgress", status: "False" }] }, "settled"],
  ["a deferred resize", { conditions: [pending("Deferred")] }, "deferred"],
  ["an infeasible resize", { conditions: [pending("Infeasible")] }, "declined"],
  ["an infeasible resize of this generation", { conditions: [pending("Infeasible", 2)] }, "declined"],
  ["an infeasible resize of an older generation", { conditions: [pending("Infeasible", 1)] }, "declined"],
  ["a deferred resize of an older generation", { conditions: [pending("Deferred", 1)] }, "deferred"],
  ["an infeasible resize beside a new image", { conditions: [pending("Infeasible")], running: "app:1" }, "unconfirmed"],
])("%s", (_, one, expected) => {
  expect(progress(one)).toBe(expected);
});

function proxy(image: string): Json {
  return { initContainerStatuses: [{ name: "proxy", image, imageID: "" }] };
}

/** One version of a pod whose runtime reports `busybox:2` by another name. */
interface Version {
  readonly observed?: number;
  readonly generation?: number;
  readonly containerID?: string;
  readonly imageID?: string;
  readonly restartCount?: number;
}

/** The states that the versions of one pod show one after another. */
function history(...versions: readonly Version[]): readonly string[] {
  const changes = new InPlaceChanges();
  return versions.map(({ observed, generation = 2, containerID = "c1", imageID = "sha256:1", restartCount = 0 }) => {
    const status = { name: "app", image: "quay.io/library/busybox:2", imageID, containerID, restartCount };
    const raw = {
      metadata: { namespace: "ns", name: "a", uid: "u", resourceVersion: "5", generation },
      spec: { containers: [{ name: "app", image: "busybox:2" }] },
      status: { observedGeneration: observed, containerStatuses: [status] },
    };
    const pod = parsePod(raw);
    changes.see(raw, pod);
    if (changes.unconfirmedGeneration(pod) === generation) return "unconfirmed";
    return changes.settledGeneration(pod) === generation ? "settled" : "under way";
  });
}

test.each<[string, readonly Version[], readonly string[]]>([
  ["another container", [{ observed: 1 }, { observed: 2, containerID: "c2" }], ["under way", "settled"]],
  ["another image", [{ observed: 1 }, { observed: 2, imageID: "sha256:2" }], ["under way", "settled"]],
  ["one restart more", [{ observed: 1 }, { observed: 2, restartCount: 1 }], ["under way", "settled"]],
  [
    "the kubelet has seen it, and restarts later",
    [{ observed: 1 }, { observed: 2 }, { observed: 2, containerID: "c2" }],
    ["under way", "unconfirmed", "settled"],
  ],
  [
    "a crash before the kubelet has seen it",
    [{ observed: 1 }, { observed: 1, restartCount: 1 }, { observed: 2, restartCount: 1 }],
    ["under way", "under way", "unconfirmed"],
  ],
  [
    "a container that is not there yet",
    [{ observed: 1 }, { observed: 2, containerID: "" }],
    ["under way", "unconfirmed"],
  ],
  ["first seen after the restart", [{ observed: 2, containerID: "c2" }], ["unconfirmed"]],
  ["no observed generation", [{}, { containerID: "c2" }], ["unconfirmed", "unconfirmed"]],
  [
    "a second change",
    [{ observed: 1 }, { observed: 2, containerID: "c2" }, { generation: 3, observed: 2, containerID: "c2" }],
    ["under way", "settled", "under way"],
  ],
])("an image under another name: %s", (_, versions, states) => {
  expect(history(...versions)).toEqual(states);
});

test("of a change with unrecognised images only what shows a restart is kept in memory", () => {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  const changes = new InPlaceChanges();
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let pod = 0; pod < 1_000; pod++) {
    const terminated = { message: `${pod} `.repeat(25_000) };
    const lastState = JSON.parse(JSON.stringify({ terminated }));
    const raw = {
      metadata: { namespace: "ns", name: `a-${pod}`, uid: `u-${pod}`, resourceVersion: "5", generation: 2 },
      spec: { containers: [{ name: "app", image: "app:2" }] },
      status: { observedGeneration: 2, containerStatuses: [{ name: "app", image: "app:1", lastState }] },
    };
    changes.see(raw, parsePod(raw));
  }
  collect();
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(20_000_000);
});
