/** The API server model under virtual time, as a server of the contract's script. */
import { VirtualTime } from "../../support/runtime/virtual-ports.ts";
import { Etcd } from "../apiserver/etcd.ts";
import { requestBody } from "../apiserver/patches.ts";
import { parsePath } from "../apiserver/resources.ts";
import { ApiServer } from "../apiserver/server.ts";
import type { ContractServer } from "./script.ts";

const STEP_MS = 10_000;

export function modelServer(): ContractServer {
  const time = new VirtualTime();
  const server = new ApiServer("model", new Etcd(), time, {
    watchLagMs: () => 1,
    commitDelayMs: () => 1,
    pageObjects: () => 0,
    servesStaleList: () => false,
    requestTimeoutMs: 60_000,
    objectLimitBytes: () => 1_500_000,
    // Spread over all shards, as random UIDs are.
    uidOf: (count) => `${count}-uid`,
  });
  return {
    request: async (method, path, body, contentType = "application/json") => {
      const json = body === undefined ? undefined : requestBody(JSON.parse(JSON.stringify(body)));
      const answer = server.handle({ method, path, body: json, contentType, user: "contract" });
      await time.advance(STEP_MS);
      return await answer;
    },
    watch: async (path) => {
      const target = parsePath(path);
      if (target === undefined) throw new Error(`the model does not serve ${path}`);
      const lines: unknown[] = [];
      const decoder = new TextDecoder();
      server.watch(target, { line: (bytes) => lines.push(JSON.parse(decoder.decode(bytes))), end: () => {} });
      await time.advance(STEP_MS);
      return lines;
    },
  };
}
