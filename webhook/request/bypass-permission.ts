/**
 * Whether a user may bypass a protector: a SubjectAccessReview (design 9). The cell is asked, because the user that a review names is one
 * of the cell: the same name is somebody else in the core, and every cluster has a `system:serviceaccount:default:default`. A
 * role on `podprotectors` can be bound in a cell whether or not its API is served there.
 */
import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { GROUP, PLURAL } from "../../shared/schema/annotations.ts";
import type { User } from "./admission-request.ts";

export type Permission = "allowed" | "denied" | "unknown";

/** As the authorizer's own cache in kube-apiserver: a permission that was taken away is gone within this. */
export const REMEMBERED_MS = 10_000;
/** Answers that are remembered; the oldest go first. */
const MAX_REMEMBERED = 1_000;
/** Questions under way at once; whoever comes then is told that it is not known. */
const MAX_AT_ONCE = 32;
const MAX_CALL_MS = 2_000;
/** Of what a review has left, how much it waits for an answer: without one its pod is decided like any other, which takes time as well. */
const WAITED_FRACTION = 0.5;
const PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

export class Permissions {
  readonly #api: Pick<ApiClient, "create">;
  readonly #ports: Pick<Ports, "clock" | "timers">;
  readonly #known = new Map<string, { readonly answer: Permission; readonly atMs: number }>();
  readonly #asking = new Map<string, Promise<Permission>>();

  constructor(api: Pick<ApiClient, "create">, ports: Pick<Ports, "clock" | "timers">) {
    this.#api = api;
    this.#ports = ports;
  }

  /** Never rejects; resolves within half of `timeoutMs`. */
  async mayBypass(user: User, namespace: string, timeoutMs: number): Promise<Permission> {
    const key = JSON.stringify([namespace, user.username, user.uid, user.groups, user.extra]);
    const known = this.#known.get(key);
    if (known !== undefined && this.#ports.clock.monotonicMs() - known.atMs < REMEMBERED_MS) return known.answer;
    const asking = this.#asking.get(key);
    if (asking === undefined && this.#asking.size >= MAX_AT_ONCE) return "unknown";
    return this.#waitFor(asking ?? this.#begin(key, user, namespace), timeoutMs * WAITED_FRACTION);
  }

  #begin(key: string, user: User, namespace: string): Promise<Permission> {
    const question = this.#ask(user, namespace).then((answer) => {
      this.#asking.delete(key);
      if (answer !== "unknown") this.#remember(key, answer);
      return answer;
    });
    this.#asking.set(key, question);
    return question;
  }

  /** Who shares a question has its own deadline: one review waits neither longer nor shorter because another asked first. */
  #waitFor(question: Promise<Permission>, limitMs: number): Promise<Permission> {
    return new Promise((resolve) => {
      const timer = this.#ports.timers.after(Math.max(0, limitMs), () => resolve("unknown"));
      void question.then((answer) => {
        timer.cancel();
        resolve(answer);
      });
    });
  }

  async #ask({ username, uid, groups, extra }: User, namespace: string): Promise<Permission> {
    const body = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SubjectAccessReview",
      spec: {
        user: username,
        ...(uid === undefined ? {} : { uid }),
        groups,
        extra,
        resourceAttributes: { group: GROUP, resource: PLURAL, verb: "bypass", namespace },
      },
    };
    const result = await this.#api.create(PATH, body, isAllowed, { timeoutMs: MAX_CALL_MS });
    if (result.kind !== "ok") return "unknown";
    return result.object ? "allowed" : "denied";
  }

  #remember(key: string, answer: Permission): void {
    this.#known.delete(key);
    const [oldest] = this.#known.keys();
    if (oldest !== undefined && this.#known.size >= MAX_REMEMBERED) this.#known.delete(oldest);
    this.#known.set(key, { answer, atMs: this.#ports.clock.monotonicMs() });
  }
}

/** `status.allowed`; anything that can't be read is no. */
function isAllowed(raw: unknown): boolean {
  const status: unknown = Reflect.get(Object(raw), "status");
  return Reflect.get(Object(status), "allowed") === true;
}
