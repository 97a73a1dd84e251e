import { type ApiAnswer, type ApiCallOptions, field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { KubectlResult } from "../../../scripts/control-plane/kubectl.ts";

/** What the webhook says for a while after its core, or the machine, stood still for a second. */
const UNDECIDED = /was out of reach until just now|could not decide before the deadline/;

/** A replica had no processor time for ten seconds. It has not read the request. */
const NOT_REACHED = /failed calling webhook .*TLS handshake timeout/;

/**
 * A request that the webhook decides, as the administrator sends it. Where it is told to come again because nothing
 * could be decided yet, it comes again, as every client does (docs/design.md#after-an-outage-of-a-core).
 */
export function ask(
  cluster: Cluster,
  method: string,
  path: string,
  body?: unknown,
  options?: ApiCallOptions,
): Promise<ApiAnswer> {
  return untilDecided(cluster, () => cluster.admin.request(method, path, body, options));
}

/** Any other call of this kind. */
export async function untilDecided(cluster: Cluster, call: () => Promise<ApiAnswer>): Promise<ApiAnswer> {
  let answer = await call();
  const isDecided = (): boolean => !isUndecided(answer.status, messageOf(answer));
  if (isDecided()) return answer;
  await cluster.waitFor("the webhook to decide", async () => {
    answer = await call();
    return isDecided();
  });
  return answer;
}

/** The same with kubectl. */
export async function kubectlDecided(cluster: Cluster, args: readonly string[]): Promise<KubectlResult> {
  let result = await cluster.kubectl(args);
  const isDecided = (): boolean => !UNDECIDED.test(result.stderr);
  if (isDecided()) return result;
  await cluster.waitFor("the webhook to decide", async () => {
    result = await cluster.kubectl(args);
    return isDecided();
  });
  return result;
}

/** True for a response that only says that nothing could be decided yet. */
export function isUndecided(status: number, message: string): boolean {
  return (status === 429 && UNDECIDED.test(message)) || (status === 500 && NOT_REACHED.test(message));
}

/** What a denied caller is told. */
export function messageOf(answer: ApiAnswer): string {
  const message = field(answer.body, "message");
  return typeof message === "string" ? message : answer.text;
}

/** The verdict on a request, in the words of docs/design.md#admission-table. */
export function verdictOf(answer: ApiAnswer): string {
  if (answer.status < 300) return "allow";
  if (answer.status !== 429) return String(answer.status);
  return field(answer.body, "details", "retryAfterSeconds") === undefined ? "denial" : "busy";
}
