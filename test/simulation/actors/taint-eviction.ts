/**
 * The taint eviction controller of kube-controller-manager, and client-go below it: five tries, each repeated by the
 * client itself for as long as the response says so. All of them by the pod's name: another pod may have it meanwhile.
 */
import { sleep } from "../../../shared/runtime/clock.ts";
import type { SimulatedResponse } from "../apiserver/responses.ts";
import type { World } from "../world/world.ts";

/** Its account, whether it is a controller of its own or a part of node-lifecycle. */
export const TAINT_EVICTION = "system:serviceaccount:kube-system:node-controller";

const TRIES = 5;
const PAUSE_MS = 10;
/** client-go's `maxRetries`. */
const REPEATS = 10;

type Call = () => Promise<SimulatedResponse>;

/** Deletes one pod as taint eviction does; resolves with the last status code. */
export async function evictByTaint(world: World, call: Call): Promise<number> {
  world.coverage.fault("taintEviction");
  for (let attempt = 1; ; attempt += 1) {
    const { status } = await repeated(world, call);
    if (status < 300 || status === 404 || !world.faultsActive) return status;
    if (attempt === TRIES) {
      world.coverage.rule("taint eviction: forgotten after five tries");
      return status;
    }
    await sleep(world.time, PAUSE_MS);
  }
}

/** As client-go: a 429 or a server error with Retry-After is repeated without the caller's knowledge. */
async function repeated(world: World, call: Call): Promise<SimulatedResponse> {
  for (let repeat = 0; ; repeat += 1) {
    const response = await call();
    const seconds = response.headers["retry-after"];
    if (repeat > 0 && response.status < 300) world.coverage.rule("taint eviction: came back after Retry-After");
    if (seconds === undefined || repeat === REPEATS || !world.faultsActive) return response;
    world.coverage.rule("client-go obeys Retry-After");
    await sleep(world.time, Number(seconds) * 1000);
  }
}
