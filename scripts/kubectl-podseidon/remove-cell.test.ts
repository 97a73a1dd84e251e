import { afterEach, describe, expect, test } from "vitest";
import { makeCell } from "../../test/support/decide/fixtures.ts";
import { heldBucket } from "../../test/support/decide/quota-fixtures.ts";
import { against, CONFLICT, cleanUp, FORBIDDEN } from "../../test/support/kube/plugin-command.ts";

afterEach(cleanUp);

const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };

describe("remove-cell", () => {
  const cells = "/api/v1/namespaces/podseidon-system/configmaps/podseidon-cells";
  const objects = {
    "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors": { metadata: { resourceVersion: "1" }, items: [] },
    [cells]: { metadata: { name: "podseidon-cells", uid: "c", resourceVersion: "1" }, data: { "a_.b": "1" } },
  };

  test("of all namespaces removes the cell's acknowledgement, which blocks the release register", async () => {
    const { code, said, writes, bodies } = await against(objects, "remove-cell", "a~b", "-A", "--yes");
    expect(said).toBe("configmap podseidon-system/podseidon-cells: cleared of cell a~b\n");
    expect([code, writes, bodies]).toEqual([0, [`PATCH ${cells}`], ['{"data":{"a_.b":null}}']]);
  });

  test("goes on with a cell that the generator was asked to remove and has not removed yet", async () => {
    const path = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";
    const finalizers = ["podseidon.kubewharf.io/generator"];
    const item = (annotations: object): object => ({
      metadata: { namespace: "shop", name: "web", uid: "p1", resourceVersion: "1", annotations, finalizers },
      spec: { minAvailable: 1, minReadySeconds: 0, selector: {} },
      status: { cells: [makeCell("b", 1)], summary },
    });
    const once = "podseidon.kubewharf.io/remove-cell-once";
    const patched = async (annotations: object): Promise<unknown> => {
      const list = { metadata: { resourceVersion: "1" }, items: [item(annotations)] };
      const one = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/shop/podprotectors/web";
      return (await against({ [path]: list, [one]: item({}) }, "remove-cell", "b", "-A")).patches;
    };
    expect(await patched({})).toEqual([
      { metadata: { uid: "p1", resourceVersion: "1", annotations: { [once]: "b" } } },
    ]);
    expect(await patched({ [once]: "a" })).toMatchObject([{ metadata: { annotations: { [once]: "a,b" } } }]);
    expect(await patched({ [once]: "b, a" })).toMatchObject([{ metadata: { annotations: { [once]: "a,b" } } }]);
  });

  test("keeps what another operator has asked for since the protectors were listed", async () => {
    const path = "/apis/podseidon.kubewharf.io/v1alpha1";
    const finalizers = ["podseidon.kubewharf.io/generator"];
    const once = "podseidon.kubewharf.io/remove-cell-once";
    const item = (resourceVersion: string, annotations: object): object => ({
      metadata: { namespace: "shop", name: "web", uid: "p1", resourceVersion, annotations, finalizers },
      spec: { minAvailable: 1, minReadySeconds: 0, selector: {} },
      status: { cells: [makeCell("a", 1), makeCell("b", 1)], summary },
    });
    const one = `${path}/namespaces/shop/podprotectors/web`;
    // The answers to a patch, a read, and the next patch.
    const answers = [CONFLICT, item("2", { [once]: "a" }), item("3", { [once]: "a,b" })];
    const list = { metadata: { resourceVersion: "1" }, items: [item("1", {})] };
    const stored = Object.defineProperty({ [`${path}/podprotectors`]: list }, one, { get: () => answers.shift() });
    const { patches, said } = await against(stored, "remove-cell", "b", "-A");
    expect(said).toContain("podprotector shop/web: would be cleared of cell b");
    expect(patches).toEqual([
      { metadata: { uid: "p1", resourceVersion: "1", annotations: { [once]: "b" } } },
      { metadata: { uid: "p1", resourceVersion: "2", annotations: { [once]: "a,b" } } },
    ]);
  });

  const none = { totalReplicas: 0, availableReplicas: 0 };
  test.each([
    ["removes a cell that has counted", makeCell("b", 1), true],
    [
      "removes a cell that is held and has not counted since its protector was lost",
      { cellID: "b", aggregation: { ...none, hold: "Restored/1-x" } },
      true,
    ],
    [
      "removes a cell that has reservations and has not counted",
      { ...makeCell("b", 1, [heldBucket("u")]), aggregation: none },
      true,
    ],
    ["finds nothing of a cell that was removed before", { cellID: "b", aggregation: { ...none, epoch: 6 } }, false],
  ])("%s", async (_, cell, isRemoved) => {
    const metadata = { namespace: "shop", name: "web", uid: "p1", resourceVersion: "1" };
    const finalizers = ["podseidon.kubewharf.io/generator"];
    const spec = { minAvailable: 1, minReadySeconds: 0, selector: {} };
    const item = { metadata: { ...metadata, finalizers }, spec, status: { cells: [cell], summary } };
    const one = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/shop/podprotectors/web";
    const all = { "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors": { metadata, items: [item] }, [one]: item };
    const { code, writes } = await against(all, "remove-cell", "b", "-A");
    expect([code, writes]).toEqual(isRemoved ? [1, [`PATCH dry ${one}`]] : [2, []]);
  });

  test("goes on where a protector was deleted meanwhile", async () => {
    const path = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";
    const finalizers = ["podseidon.kubewharf.io/generator"];
    const item = (name: string): object => ({
      metadata: { namespace: "shop", name, uid: name, resourceVersion: "1", finalizers },
      spec: { minAvailable: 1, minReadySeconds: 0, selector: {} },
      status: { cells: [makeCell("a~b", 1)], summary },
    });
    const there = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/shop/podprotectors/web";
    const list = { metadata: { resourceVersion: "1" }, items: [item("gone"), item("web")] };
    const all = { ...objects, [path]: list, [there]: item("web") };
    const { code, said, writes } = await against(all, "remove-cell", "a~b", "-A", "--yes");
    expect([code, writes.slice(1)]).toEqual([0, [`PATCH ${there}`, `PATCH ${cells}`]]);
    expect(said).not.toContain("shop/gone:");
  });

  test("does not say that it removed a cell from a protector that was made by hand", async () => {
    const metadata = { namespace: "shop", name: "web", uid: "p1", resourceVersion: "1" };
    const spec = { minAvailable: 1, minReadySeconds: 0, selector: {} };
    const list = { metadata, items: [{ metadata, spec, status: { cells: [makeCell("b", 1)], summary } }] };
    const objects = { "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors": list };
    const { code, said, writes } = await against(objects, "remove-cell", "b", "-A", "--yes");
    expect(said).toContain("edit its status by hand");
    expect(said).toContain("podprotector shop/web: left with cell b\n");
    expect([code, writes]).toEqual([1, []]);
  });

  test.each<[string, string[], string[]]>([
    ["without --yes only tries it", ["a~b", "-A"], [`PATCH dry ${cells}`]],
    ["of one that may return leaves its acknowledgement", ["a~b", "-A", "--may-return", "--yes"], []],
    ["of another system namespace finds nothing", ["a~b", "-A", "--system-namespace", "other", "--yes"], []],
    ["of a cell that did not acknowledge finds nothing", ["c", "-A", "--yes"], []],
  ])("%s", async (_, args, expected) => {
    expect((await against(objects, "remove-cell", ...args)).writes).toEqual(expected);
  });

  test("tells a user who may not do all of it which protectors it has changed", async () => {
    const item = (name: string): object => ({
      metadata: {
        namespace: "shop",
        name,
        uid: name,
        resourceVersion: "1",
        finalizers: ["podseidon.kubewharf.io/generator"],
      },
      spec: { minAvailable: 1, minReadySeconds: 0, selector: {} },
      status: { cells: [makeCell("b", 1)], summary },
    });
    const path = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";
    const of = (name: string): string => `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/shop/podprotectors/${name}`;
    // The refusal of the latter is the last of eight calls at once.
    const many = Array.from({ length: 8 }, () => item("mine"));
    const list = { metadata: { resourceVersion: "1" }, items: [...many, item("others")] };
    const objects = { [path]: list, [of("mine")]: item("mine"), [of("others")]: FORBIDDEN };
    const { code, said } = await against(objects, "remove-cell", "b", "-A", "--yes");
    expect(said).toContain(`${of("others")}: HTTP 403: it is forbidden; `);
    expect(said).toMatch(
      /; at least \d protectors? \(shop\/mine.*\) will be cleared of b all the same\. The command can be repeated\n/,
    );
    expect(code).toBe(2);
    expect((await against(objects, "remove-cell", "b", "-A")).said).toMatch(/it is forbidden\n$/);
  });
});
