import { expect, test, vi } from "vitest";
import type { Transport } from "../../shared/kube/client/transport.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { makeCell, makeProtector } from "../../test/support/decide/fixtures.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { ClusterClient } from "./invocation/cluster.ts";
import { Context } from "./invocation/command.ts";
import { status } from "./status.ts";

function named(name: string, available: number): PodProtector {
  const protector = makeProtector([makeCell("a", available)]);
  return { ...protector, metadata: { ...protector.metadata, namespace: "shop", name } };
}

/** The lines of `status --watch NAMES` on a core that has what `there` has at each look. */
function watching(there: PodProtector[], ...names: string[]) {
  const time = new VirtualTime();
  const [printed, errors]: [string[], string[]] = [[], []];
  const terminal = {
    out: (text: string) => void printed.push(...text.split("\n").filter((line) => line !== "")),
    err: (text: string) => void errors.push(text),
    interactive: false,
  };
  const context = new Context({ watch: true, namespace: "shop" }, { terminal, ports: time, environment: {} });
  const transport: Transport = {
    request: async () => ({
      status: 200,
      headers: {},
      body: JSON.stringify({ metadata: { resourceVersion: "1" }, items: there }),
    }),
    stream: () => Promise.reject(new Error("unused")),
    close: () => undefined,
  };
  const access = { server: "https://core", namespace: undefined, credentials: undefined };
  const core = new ClusterClient("core", access as never, transport, { nowMs: () => 0 });
  vi.spyOn(context, "core").mockResolvedValue(core);
  const failure = status.run(context, names).catch(String);
  /** Name and state of each line since the last call. */
  const lines = async (afterMs = 2_000): Promise<readonly string[]> => {
    await time.advance(afterMs);
    return printed.splice(0).map((line) => line.replace(/ .* /, " "));
  };
  return { errors, failure, lines };
}

test("a named protector that is watched is shown as deleted, once, and again when it is back", async () => {
  const web = named("web", 3);
  const there = [web, named("api", 3)];
  const { lines, errors } = watching(there, "web", "api");
  expect(await lines(0)).toEqual(["NAME STATE", "web ok", "api ok"]);
  there.shift();
  expect(await lines()).toEqual(["web deleted"]);
  there[0] = named("api", 4);
  expect(await lines()).toEqual(["api ok"]);
  there.push(web);
  expect(await lines()).toEqual(["web ok"]);
  expect(errors).toEqual([]);
});

test("a named protector that there is not is not waited for", async () => {
  const { failure } = watching([named("web", 3)], "api");
  expect(await failure).toContain("there is no PodProtector api in namespace shop of core");
});
