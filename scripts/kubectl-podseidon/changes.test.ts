import { afterEach, describe, expect, test } from "vitest";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { against, CONFLICT, cleanUp, FORBIDDEN, given } from "../../test/support/kube/plugin-command.ts";
import { field } from "../control-plane/api-client.ts";
import { findSource } from "./changes.ts";
import { CLUSTER_ANNOTATION, rolesOf } from "./join/cell-objects.ts";

afterEach(cleanUp);

const CLONE_SETS = "/apis/apps.kruise.io/v1alpha1/namespaces/shop/clonesets";
/** A group whose newer version is without CloneSets. */
const served: Readonly<Record<string, unknown>> = {
  "/apis/apps.kruise.io": {
    preferredVersion: { groupVersion: "apps.kruise.io/v1beta1" },
    versions: [{ groupVersion: "apps.kruise.io/v1beta1" }, { groupVersion: "apps.kruise.io/v1alpha1" }],
  },
  [`${CLONE_SETS}/web`]: {},
};
const core = { find: async (path: string): Promise<unknown> => served[path] };

function protector(name: string, ownerReferences: PodProtector["metadata"]["ownerReferences"] = []): PodProtector {
  const labels = {
    "podseidon.kubewharf.io/source-name": name,
    "podseidon.kubewharf.io/source-group": "apps.kruise.io",
    "podseidon.kubewharf.io/source-kind": "CloneSet",
    "podseidon.kubewharf.io/source-resource": "clonesets",
  };
  const metadata = { namespace: "shop", name: `cloneset-${name}`, uid: "p1", resourceVersion: "1", labels };
  const spec = { minAvailable: 1, minReadySeconds: 0, selector: {} };
  return { metadata: { ...metadata, ownerReferences }, spec };
}

describe("the workload of a protector is looked for in every version of its group", () => {
  const owner = { apiVersion: "apps.kruise.io/v1alpha1", kind: "CloneSet", name: "web", uid: "u1", controller: true };
  test.each<[string, PodProtector, string | undefined]>([
    ["one that its owner reference names", protector("web", [owner]), `${CLONE_SETS}/web`],
    ["one that its labels name", protector("web"), `${CLONE_SETS}/web`],
    ["one that is gone", protector("other"), undefined],
  ])("%s", async (_, given, expected) => {
    expect(await findSource(core, given)).toBe(expected);
  });
});

describe("a suspension that is the budget's own", () => {
  const group = "/apis/x-pdb.form3.tech";
  const path = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/shop/podprotectors/xpoddisruptionbudget-db";
  const budget = {
    metadata: {
      namespace: "shop",
      name: "xpoddisruptionbudget-db",
      uid: "p1",
      resourceVersion: "1",
      finalizers: ["podseidon.kubewharf.io/generator"],
      labels: {
        "podseidon.kubewharf.io/source-name": "db",
        "podseidon.kubewharf.io/source-group": "x-pdb.form3.tech",
        "podseidon.kubewharf.io/source-kind": "XPodDisruptionBudget",
        "podseidon.kubewharf.io/source-resource": "xpoddisruptionbudgets",
      },
    },
    spec: { minAvailable: 1, minReadySeconds: 0, selector: {} },
  };
  const vanished = { [path]: budget };
  const present = {
    ...vanished,
    [group]: { versions: [{ groupVersion: "x-pdb.form3.tech/v1alpha1" }] },
    [`${group}/v1alpha1/namespaces/shop/xpoddisruptionbudgets/db`]: {},
  };

  test.each([
    ["suspend", ["--yes"]],
    ["resume", []],
  ])("%s does not promise what the generator takes back at once", async (command, flags) => {
    const { code, said, writes } = await against(present, command, "xpoddisruptionbudget-db", ...flags);
    expect(said).toContain("spec.suspend of XPodDisruptionBudget db decides");
    expect([code, writes]).toEqual([2, []]);
  });

  describe("of worker clusters, which the generator writes in the core", () => {
    const key = "podseidon.kubewharf.io/cluster-budgets";
    const clusters = { "worker-1": {}, "worker-2": { suspend: true } };
    const annotations = { [key]: JSON.stringify({ name: "data", clusters }) };
    const merged = { metadata: { labels: { [key]: "true" }, annotations } };
    const objects = { ...present, [`${group}/v1alpha1/namespaces/shop/xpoddisruptionbudgets/db`]: merged };

    test.each([
      ["suspend", ["--yes"], "spec.suspend decides"],
      ["resume", [], "spec.suspend decides"],
      ["release", ["--yes"], "annotate it with podseidon.kubewharf.io/protect=false"],
    ])("is changed there: %s does not promise what the generator takes back", async (command, flags, text) => {
      const { code, said, writes } = await against(objects, command, "xpoddisruptionbudget-db", ...flags);
      expect(said).toContain("made of XPodDisruptionBudget shop/data in worker-1, worker-2");
      expect(said).toContain(text);
      expect([code, writes]).toEqual([2, []]);
    });

    test.each([
      ["suspend", "without that flag, spec.suspend of XPodDisruptionBudget db decides"],
      ["release", /without that flag, kubectl --kubeconfig \S+ delete xpoddisruptionbudgets db -n shop releases it/],
    ])("and where no generator has --budget-cluster any more: %s says what to do there, too", async (command, text) => {
      const { said } = await against(objects, command, "xpoddisruptionbudget-db", "--yes");
      expect(said).toMatch(text);
    });

    const at = `${group}/v1alpha1/namespaces/shop/xpoddisruptionbudgets/db`;
    test("is none where its annotation alone says so, which anybody may copy", async () => {
      const copied = { ...present, [at]: { metadata: { annotations } } };
      const { said, writes } = await against(copied, "release", "xpoddisruptionbudget-db");
      expect(said).toContain("podprotector shop/xpoddisruptionbudget-db: would be released");
      expect(writes).toEqual([`PATCH dry ${at}`]);
    });

    test.each(["{", '{"name":"data","clusters":{}}'])(
      "is one by its label, whatever %s says of clusters",
      async (text) => {
        const untrue = { metadata: { labels: { [key]: "true" }, annotations: { [key]: text } } };
        const result = await against({ ...present, [at]: untrue }, "release", "xpoddisruptionbudget-db", "--yes");
        expect(result.said).toContain("is made of budgets of worker clusters, which its annotation does not name");
        expect([result.code, result.writes]).toEqual([2, []]);
      },
    );
  });

  test("is anybody's once the budget has vanished", async () => {
    const { code, writes } = await against(vanished, "suspend", "xpoddisruptionbudget-db", "--yes");
    expect([code, writes]).toEqual([0, ["POST /apis/authentication.k8s.io/v1/selfsubjectreviews", `PATCH ${path}`]]);
  });
});

const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };

describe("a suspension", () => {
  const path = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/shop/podprotectors/web";
  const stored = (spec: object = {}): Readonly<Record<string, unknown>> => ({
    [path]: {
      metadata: { namespace: "shop", name: "web", uid: "p1", resourceVersion: "1" },
      spec: { minAvailable: 1, minReadySeconds: 0, selector: {}, ...spec },
      status: { cells: [{ cellID: "east" }, { cellID: "west" }], summary },
    },
  });

  test("ends by the clock of the cluster, from which this machine's may be hours away", async () => {
    given.aheadMs = -7_200_000;
    const { code, patches } = await against(stored(), "suspend", "web", "--for", "30m", "--yes");
    const inMs = Date.parse(String(field(patches[0], "spec", "suspend", "until"))) - Date.now() - given.aheadMs;
    expect([code, Math.round(inMs / 60_000)]).toEqual([0, 30]);
  });

  test("that is longer than one can be says so, and how long it is", async () => {
    const { said } = await against(stored(), "suspend", "web", "--for", "999999d", "--yes");
    expect(said).toMatch(/^(?=.*suspended for 3\d{4}d.*, until 2112-)(?=.*: --for 999999d is longer than a susp)/s);
  });

  test("that is over by this machine's clock alone is ended all the same", async () => {
    const suspend = { enabled: true, until: "2020-01-01T00:00:00Z" };
    const { code, said, writes } = await against(stored({ suspend }), "resume", "web");
    expect([code, said, writes.at(-1)]).toEqual([0, "podprotector shop/web: resumed\n", `PATCH ${path}`]);
  });

  test("is not said to have ended where enforcement is off", async () => {
    const off = { enforcement: "Off", suspend: { enabled: true } };
    const { code, said, writes } = await against(stored(off), "resume", "web");
    expect([code, writes]).toEqual([2, []]);
    expect(said).toContain("spec.enforcement is Off");
  });

  test("whose reason has lines of its own adds none to what is said", async () => {
    const suspend = { enabled: true, reason: "moving\npodprotector shop/web: resumed" };
    const { said } = await against(stored({ suspend }), "suspend", "web");
    expect(said).toContain("Warning: the reason stays: moving\\npodprotector shop/web: resumed\n");
  });

  test.each([
    ["suspend", { finalizers: [] }, ["--yes"]],
    ["resume", { finalizers: [] }, []],
    ["release", { finalizers: ["podseidon.kubewharf.io/generator"] }, []],
  ])("is changed by %s only in the protector that was read", async (command, metadata, flags) => {
    const [read] = Object.values(stored({ suspend: { enabled: true } }));
    const objects = { [path]: { ...Object(read), metadata: { ...Object(field(read, "metadata")), ...metadata } } };
    const { patches } = await against(objects, command, "web", ...flags);
    expect(patches.map((patch) => field(patch, "metadata", "uid"))).toEqual(["p1"]);
  });

  test("that is not there is ended without a write", async () => {
    const { said, writes } = await against(stored(), "resume", "web");
    expect([said, writes]).toEqual(["podprotector shop/web: not suspended\n", []]);
  });

  test.each([[""], [","], ["east,"]])("of the cells %j is refused, and not one of all cells", async (cells) => {
    const { code, writes } = await against(stored(), "suspend", "web", "--cells", cells, "--yes");
    expect([code, writes]).toEqual([2, []]);
  });

  test.each([
    [["east"], [], ["it is suspended already in east alone, until", "the other cells are new: --cells east leaves"]],
    [["east"], ["--cells", "west"], ["already in east alone, until", "this ends its suspension in east\n"]],
    [["east"], ["--cells", "east"], ["already in east alone, until"]],
    [undefined, ["--cells", "west"], ["it is suspended already, until", "this ends its suspension in east\n"]],
    [undefined, [], ["it is suspended already, until"]],
  ])("of the cells %j says what the next one, with %j, adds and ends", async (cells, flags, texts) => {
    const { said } = await against(stored({ suspend: { enabled: true, cells } }), "suspend", "web", ...flags);
    for (const text of texts) expect(said).toContain(text);
    expect(said.match(/^Warning: (?:it is suspended|the other|this ends)/gm)).toHaveLength(texts.length);
  });

  test("takes blanks between cells, and says which cell nobody knows", async () => {
    const { said, patches } = await against(stored(), "suspend", "web", "--cells", "east, wset", "--yes");
    expect(patches).toMatchObject([{ spec: { suspend: { cells: ["east", "wset"] } } }]);
    expect(said.match(/it is not counted in a cell \w+/g)).toEqual(["it is not counted in a cell wset"]);
  });
});

test("a context with an empty namespace means default, as for kubectl", async () => {
  given.namespace = "";
  const { said } = await against({}, "status", "web");
  expect(said).toContain("namespaces/default/podprotectors");
});

test("status of a name in all namespaces shows each that has it", async () => {
  const items = ["shop", "stage"].map((namespace) => ({
    metadata: { namespace, name: "deployment-web", uid: `of-${namespace}`, resourceVersion: "1" },
    spec: { minAvailable: 1, minReadySeconds: 0, selector: {} },
  }));
  const list = { kind: "PodProtectorList", metadata: { resourceVersion: "1" }, items };
  const path = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";
  const { code, said } = await against({ [path]: list }, "status", "deployment-web", "-A");
  expect(said).toMatch(/shop\/deployment-web[\s\S]*stage\/deployment-web/);
  expect(code).toBe(0);
});

test.each([
  [
    "made by hand",
    {},
    /^error: shop\/web was made by hand: kubectl --kubeconfig \S+ delete podprotector web -n shop releases it$/m,
  ],
  [
    "with the label of a workload, as a copy of another one has it",
    { "podseidon.kubewharf.io/source-name": "web" },
    /by kubectl (\S+ \S+) annotate podprotector web -n shop \S+=true && kubectl \1 delete podprotector web -n/m,
  ],
])("release of a protector without the generator's finalizer, %s, says what ends it", async (_, labels, text) => {
  const path = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/shop/podprotectors/web";
  const metadata = { namespace: "shop", name: "web", uid: "p1", resourceVersion: "1", labels };
  const spec = { minAvailable: 1, minReadySeconds: 0, selector: {} };
  const { code, said, writes } = await against({ [path]: { metadata, spec } }, "release", "web", "--yes");
  expect(said).toMatch(text);
  expect([code, writes]).toEqual([2, []]);
});

test("what leave says is next names the kubeconfig and the namespace that it was given", async () => {
  const path = "/api/v1/namespaces/other/secrets/podseidon-cell.b";
  const args = ["leave", "b", "--core-context", "c", "--system-namespace", "other"];
  const { said } = await against({ [path]: { kind: "Status", status: "Success" } }, ...args, "--yes");
  expect(said).toMatch(
    /remove-cell b --all-namespaces --core-context c --yes --kubeconfig \S+ --system-namespace other$/m,
  );
});

const KUBECONFIG = "/api/v1/namespaces/podseidon-system/secrets/podseidon-core-webhook";
/** A Secret whose kubeconfig is not of the cell. */
const OTHERS = { metadata: { name: "s", uid: "s", resourceVersion: "1" }, data: { kubeconfig: "eA==" } };
const BOUND = "/api/v1/namespaces/podseidon-system/secrets/podseidon-cell.b";

test.each<[string, Readonly<Record<string, unknown>>, string[], number, string]>([
  ["of an id that no cluster has", { [KUBECONFIG]: FORBIDDEN }, ["--yes"], 2, "no cluster has joined c as b"],
  ["of an id that another cluster does not have", { [KUBECONFIG]: OTHERS }, [], 2, "no cluster has joined c as b"],
  ["that is only tried", { [KUBECONFIG]: FORBIDDEN, [BOUND]: {} }, [], 1, "c may have kubeconfigs, which stay there"],
  ["that is done", { [KUBECONFIG]: FORBIDDEN, [BOUND]: {} }, ["--yes"], 0, "may still have its kubeconfigs, which are"],
])("leave %s does not say that a cluster which can't be read has kubeconfigs", async (_, objects, yes, code, text) => {
  const result = await against(objects, "leave", "b", "--core-context", "c", ...yes);
  expect([result.code, result.said]).toEqual([code, expect.stringContaining(text)]);
});

test.each<[string, string, Readonly<Record<string, unknown>>]>([
  ["leave", "remove-cell b --all-namespaces --core-context 'my prod' --yes", { [BOUND]: {} }],
  ["join", "kubectl --context 'my prod' apply -k manifests/overlays/core", {}],
])("what %s says is next can be pasted where a context has a blank in its name", async (command, text, objects) => {
  given.context = "my prod";
  const more = command === "leave" ? ["--yes"] : ["--context", "my prod"];
  const { said } = await against(objects, command, "b", "--core-context", "my prod", ...more);
  expect(said).toContain(text);
});

test("join without --context does not take the core for the worker cluster", async () => {
  const { code, said, writes } = await against({ [BOUND]: {} }, "join", "b", "--core-context", "c");
  expect(said).toMatch(/^error: name the context of the worker cluster: --context WORKER/);
  expect([code, writes]).toEqual([2, []]);
});

test("of two clusters that join under one id at the same time, one is refused", async () => {
  const of = (cluster: string) => ({
    metadata: { name: "x", uid: cluster, resourceVersion: "1", annotations: { [CLUSTER_ANNOTATION]: cluster } },
  });
  // Nobody has joined, until this one is about to.
  let reads = 0;
  const secrets = [{ items: [] }, CONFLICT];
  const found = { "/api/v1/namespaces/kube-system": of("this"), "/api/v1/namespaces/podseidon-system": of("ns") };
  const roles = rolesOf("podseidon-system").map(({ path }) => [path, of("role")]);
  const objects = Object.defineProperties(Object.fromEntries([...Object.entries(found), ...roles]), {
    [BOUND]: { get: () => (++reads > 2 ? of("other") : undefined) },
    [BOUND.slice(0, BOUND.lastIndexOf("/"))]: { get: () => secrets.shift() },
  });
  const { said, writes } = await against(
    objects,
    "join",
    "b",
    ...["core-context=c", "context=c", "server=https://c"].map((one) => `--${one}`),
  );
  expect(said).toMatch(/^error: another cluster has joined c as b \(other; this one is this\)/);
  expect(writes).toEqual([`POST ${BOUND.slice(0, BOUND.lastIndexOf("/"))}`]);
});

describe("who may not do all of it hears what is done already", () => {
  const refused = (path: string): RegExp => new RegExp(`^error: c: .*${path}: HTTP 403: it is forbidden; `);

  test("leave, of the tokens that it has revoked", async () => {
    const path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/podseidon-webhook-core.b";
    const args = ["leave", "b", "--core-context", "c"];
    const objects = { [BOUND]: {}, [path]: FORBIDDEN };
    const { code, said } = await against(objects, ...args, "--yes");
    expect(said).toMatch(refused(path));
    expect(said).toMatch(/; before that: secret\/podseidon-cell\.b deleted \(c\)\. The command can be repeated\n$/);
    expect(code).toBe(2);
    expect((await against(objects, ...args)).said).toMatch(/it is forbidden\n$/);
  });
});
