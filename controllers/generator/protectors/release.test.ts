import { describe, expect, test } from "vitest";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION } from "../../../shared/schema/annotations.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { type ReleaseCalls, release } from "./release.ts";

const UNAVAILABLE = { kind: "unavailable", error: new Error("no answer"), sent: false } as const;

/** A core with one protector, and the calls for it in order. */
class Core {
  readonly done: string[] = [];
  stored: PodProtector | undefined;
  /** The deletion gets no response. */
  isSilent = false;
  /** Another generator removes the mark before the deletion. */
  isTakenBack = false;
  /** Somebody has created the protector again. */
  isSucceeded = false;
  recorded: ApiResult<unknown> = { kind: "ok", object: undefined };

  constructor(finalizers: string[]) {
    const metadata = { namespace: "shop", name: "deployment-web", uid: "p1", resourceVersion: "1", finalizers };
    this.stored = { metadata, spec: { minAvailable: 1, minReadySeconds: 0, selector: {} } };
  }

  #read(): ApiResult<PodProtector> {
    if (this.stored === undefined) return { kind: "gone" };
    const { metadata } = this.stored;
    return { kind: "ok", object: { ...this.stored, metadata: { ...metadata, uid: this.isSucceeded ? "p2" : "p1" } } };
  }

  readonly api: ReleaseCalls["api"] = {
    update: async (_, body, parse) => {
      const object = parsePodProtector(body);
      const { annotations, finalizers = [], deletionTimestamp } = object.metadata;
      const isFreed = finalizers.length === 0 && deletionTimestamp !== undefined;
      this.done.push(isFreed ? "free" : annotations?.[RELEASED_ANNOTATION] === undefined ? "update" : "mark");
      this.stored = isFreed ? undefined : object;
      return { kind: "ok", object: parse(object) };
    },
    delete: async () => {
      if (this.isSilent) return UNAVAILABLE;
      this.done.push("delete");
      const { stored } = this;
      if (stored === undefined) return { kind: "gone" };
      const isHeld = (stored.metadata.finalizers ?? []).length > 0;
      const annotations = this.isTakenBack ? {} : stored.metadata.annotations;
      const metadata = { ...stored.metadata, annotations, deletionTimestamp: "2026-01-01T00:00:00Z" };
      this.stored = isHeld ? { ...stored, metadata } : undefined;
      return { kind: "ok", object: undefined };
    },
    getPodProtector: async () => this.#read(),
  };

  async release(update = this.api.update): Promise<ApiResult<unknown>> {
    const { stored } = this;
    const api = { ...this.api, update };
    if (stored === undefined) throw new Error("it is gone already");
    const record = async (uid: string): Promise<ApiResult<unknown>> => {
      this.done.push(`record ${uid}`);
      return this.recorded;
    };
    const calls = { api, record, timeoutMs: 1000, signal: new AbortController().signal };
    return await release(calls, stored, "NotRequired", "2026-01-01T00:00:00Z");
  }
}

describe("a release", () => {
  test("is recorded before the finalizer is removed", async () => {
    const core = new Core([GENERATOR_FINALIZER]);
    expect((await core.release()).kind).toBe("ok");
    expect(core.done).toEqual(["mark", "delete", "record p1", "free"]);
  });

  test("of a protector whose finalizer somebody has taken off is recorded only after the deletion, too", async () => {
    const core = new Core([]);
    core.isSilent = true;
    expect((await core.release()).kind).toBe("unavailable");
    core.isSilent = false;
    expect((await core.release()).kind).toBe("ok");
    expect(core.done).toEqual(["mark", "delete", "record p1", "free"]);
  });

  test("that fails before the deletion is not recorded: its source may require the protector again", async () => {
    const core = new Core([GENERATOR_FINALIZER]);
    core.isSilent = true;
    expect((await core.release()).kind).toBe("unavailable");
    expect(core.done).toEqual(["mark"]);
    core.isSilent = false;
    expect((await core.release()).kind).toBe("ok");
    expect(core.done).toEqual(["mark", "delete", "record p1", "free"]);
  });

  test("stops when another generator removes the mark: the deleted protector stays in force", async () => {
    const core = new Core([GENERATOR_FINALIZER]);
    core.isTakenBack = true;
    expect((await core.release()).kind).toBe("conflict");
    expect(core.done).toEqual(["mark", "delete"]);
    expect(core.stored?.metadata.finalizers).toEqual([GENERATOR_FINALIZER]);
  });

  test.each<[string, ApiResult<unknown>, string[], string]>([
    ["that is not recorded frees nothing", UNAVAILABLE, [GENERATOR_FINALIZER], "unavailable"],
    ["whose record conflicts frees nothing", { kind: "conflict", message: "c" }, [GENERATOR_FINALIZER], "conflict"],
    ["goes on where there can be no register", { kind: "gone" }, [GENERATOR_FINALIZER], "ok"],
  ])("%s", async (_, recorded, finalizers, expected) => {
    const core = new Core(finalizers);
    core.recorded = recorded;
    expect((await core.release()).kind).toBe(expected);
    expect(core.stored?.metadata.finalizers).toEqual(expected === "ok" ? undefined : finalizers);
    expect(core.done.includes("delete")).toBe(finalizers.length > 0);
  });

  test("of one that vanished before its mark is recorded: otherwise its cells would restore it", async () => {
    const core = new Core([GENERATOR_FINALIZER]);
    const asked = core.release(async () => ({ kind: "gone" }));
    expect((await asked).kind).toBe("ok");
    expect(core.done).toEqual(["record p1"]);
  });

  test("frees no other protector of the same name", async () => {
    const core = new Core([GENERATOR_FINALIZER]);
    core.isSucceeded = true;
    expect((await core.release()).kind).toBe("ok");
    expect(core.done).toEqual(["mark", "delete", "record p1"]);
  });
});
