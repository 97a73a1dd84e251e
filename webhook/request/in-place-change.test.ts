import { expect, test } from "vitest";
import { changedLabels, restartedContainers } from "./in-place-change.ts";

type Json = Readonly<Record<string, unknown>>;

const RESTARTS = [
  { resourceName: "cpu", restartPolicy: "NotRequired" },
  { resourceName: "memory", restartPolicy: "RestartContainer" },
];
const app = (change: Json = {}): Json => ({ name: "app", image: "app:1", resizePolicy: RESTARTS, ...change });
const sized = (cpu: string, memory: string): Json => ({
  resources: { requests: { cpu, memory }, limits: { memory: "2Gi" } },
});
const ofPod = (cpu: string, memory: string): Json => ({ resources: { limits: { cpu, memory } } });
const pod = (containers: Json[], more: Json = {}): Json => ({
  metadata: { name: "web-0" },
  spec: { containers, ...more },
});

test.each<[string, Json, Json, string[]]>([
  ["another image", pod([app()]), pod([app({ image: "app:2" })]), ["app"]],
  ["one of two images", pod([app(), { name: "b", image: "b:1" }]), pod([app(), { name: "b", image: "b:2" }]), ["b"]],
  ["nothing", pod([app()]), pod([app()]), []],
  ["labels", pod([app()]), { ...pod([app()]), metadata: { name: "web-0", labels: { a: "b" } } }, []],
  ["tolerations", pod([app()]), pod([app()], { tolerations: [{ key: "x" }] }), []],
  ["cpu, which is resized without a restart", pod([app(sized("1", "1Gi"))]), pod([app(sized("2", "1Gi"))]), []],
  ["memory, which is not", pod([app(sized("1", "1Gi"))]), pod([app(sized("1", "2Gi"))]), ["app"]],
  [
    "a limit of memory",
    pod([app(sized("1", "1Gi"))]),
    pod([app({ resources: { requests: { cpu: "1", memory: "1Gi" }, limits: { memory: "3Gi" } } })]),
    ["app"],
  ],
  [
    "request and limit of memory, which one after the other read the same",
    pod([app({ resources: { requests: { memory: "1" }, limits: { memory: "12Gi" } } })]),
    pod([app({ resources: { requests: { memory: "11" }, limits: { memory: "2Gi" } } })]),
    ["app"],
  ],
  ["a limit of memory that is taken away", pod([app(sized("1", "1Gi"))]), pod([app({ resources: {} })]), ["app"]],
  [
    "the pod's limit of memory, of which the container has none of its own",
    pod([app(), { name: "b" }, app({ name: "c", resources: { limits: { memory: "0" } } })], ofPod("2", "1Gi")),
    pod([app(), { name: "b" }, app({ name: "c", resources: { limits: { memory: "0" } } })], ofPod("2", "2Gi")),
    ["app", "c"],
  ],
  [
    "the pod's limit of memory, where the container has its own",
    pod([app(sized("1", "1Gi"))], ofPod("2", "3Gi")),
    pod([app(sized("1", "1Gi"))], ofPod("2", "4Gi")),
    [],
  ],
  [
    "the pod's limit of cpu, which is resized without a restart",
    pod([app()], ofPod("1", "1Gi")),
    pod([app()], ofPod("2", "1Gi")),
    [],
  ],
  [
    "what the pod requests",
    pod([app()], { resources: { requests: { memory: "1Gi" } } }),
    pod([app()], { resources: { requests: { memory: "2Gi" } } }),
    [],
  ],
  [
    "memory, where no policy is given",
    pod([app({ resizePolicy: undefined, ...sized("1", "1Gi") })]),
    pod([app({ resizePolicy: undefined, ...sized("1", "2Gi") })]),
    [],
  ],
  [
    "the image of a sidecar",
    pod([app()], { initContainers: [{ name: "proxy", image: "p:1", restartPolicy: "Always" }] }),
    pod([app()], { initContainers: [{ name: "proxy", image: "p:2", restartPolicy: "Always" }] }),
    ["proxy"],
  ],
  [
    "the image of an init container that has run",
    pod([app()], { initContainers: [{ name: "migrate", image: "m:1" }] }),
    pod([app()], { initContainers: [{ name: "migrate", image: "m:2" }] }),
    [],
  ],
])("%s", (_, before, after, expected) => {
  expect(restartedContainers(before, after)).toEqual(expected);
});

test("a pod with many containers and many limits of its own does not cost their product", () => {
  const readsOf = (count: number): number => {
    let reads = 0;
    const named = Array.from({ length: count }, (_, index) => [`hugepages-${index}Ki`, "0"]);
    const limits = new Proxy<Json>(Object.fromEntries(named), {
      getOwnPropertyDescriptor: (amounts, name) => {
        reads++;
        return Reflect.getOwnPropertyDescriptor(amounts, name);
      },
    });
    const of = (image: string): Json =>
      pod(
        Array.from({ length: count }, (_, index) => app({ name: `c${index}`, image })),
        { resources: { limits } },
      );
    expect(restartedContainers(of("app:1"), of("app:2"))).toHaveLength(count);
    expect(restartedContainers(of("app:1"), of("app:1"))).toEqual([]);
    return reads;
  };
  expect(readsOf(40)).toBeGreaterThan(0);
  expect(readsOf(80)).toBeLessThan(3 * readsOf(40));
});

test("amounts that no apiserver sends, nested deeper than the stack, are none", () => {
  const deep: unknown = JSON.parse("[".repeat(50_000) + "]".repeat(50_000));
  const of = (memory: unknown): Json => pod([app({ resources: { requests: { memory } } })]);
  expect(restartedContainers(of(deep), of(""))).toEqual([]);
});

test("anything but a pod restarts nothing", () => {
  for (const odd of [undefined, null, 5, [], {}, { spec: { containers: [null, "a", { name: 5 }] } }]) {
    expect(restartedContainers(odd, odd)).toEqual([]);
  }
});

test.each<[string, Json | null, Json | null, Json | undefined]>([
  ["the same labels", { a: "1", b: "2" }, { b: "2", a: "1" }, undefined],
  ["none", null, {}, undefined],
  ["another value", { a: "1" }, { a: "2" }, { a: "2" }],
  ["a label less", { a: "1", b: "2" }, { a: "1" }, { a: "1" }],
  ["a label more, which a selector may exclude", { a: "1" }, { a: "1", b: "2" }, { a: "1", b: "2" }],
])("a change to %s", (_, before, after, expected) => {
  expect(changedLabels({ metadata: { labels: before } }, { metadata: { labels: after } })).toEqual(expected);
});
