/**
 * Whether a user may bypass protectors: a SubjectAccessReview in the cell (docs/design.md#bypass), which authenticated
 * the user. In the core, the same name means another user: every cluster has a `system:serviceaccount:default:default`.
 * A role on `podprotectors` can be bound in a cell that does not serve the API.
 */
import { hash } from "node:crypto";
import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import { retryThrottled } from "../../shared/kube/client/retry-throttled.ts";
import { BoundedMap } from "../../shared/runtime/bounded-map.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { GROUP, PLURAL } from "../../shared/schema/annotations.ts";
import { valueAt } from "../../shared/schema/check.ts";
import type { User } from "./admission-request.ts";

export type BypassPermission = "allowed" | "denied" | "unknown";

/** Like the authorizer cache of kube-apiserver: a permission that is revoked ends within this time. */
export const REMEMBERED_MS = 10_000;
/** Permissions that are remembered; the oldest go first. */
const MAX_REMEMBERED = 1_000;
/**
 * SubjectAccessReviews in flight for one caller; at this number, another permission is unknown to it at once. A caller
 * can make up users, but not its address.
 */
const MAX_IN_FLIGHT = 32;
/** Longest user, with its attributes, as JSON: credentials come in HTTP headers, which are shorter. */
const MAX_USER_LENGTH = 256 * 1024;
/** All callers with longer users count as one: they take memory. */
const MAX_OWN_LENGTH = 8 * 1024;
/** Of asking about one permission, with what a busy server puts off. */
const MAX_CALL_MS = 2_000;
/** Part of its time that an admission request waits for the permission. The rest is for deciding without it. */
const WAITED_FRACTION = 0.5;
const PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

export class BypassPermissions {
  readonly #api: Pick<ApiClient, "create">;
  readonly #ports: Pick<Ports, "clock" | "timers">;
  readonly #known = new BoundedMap<string, { readonly permission: BypassPermission; readonly atMs: number }>(
    MAX_REMEMBERED,
  );
  readonly #inFlight = new Map<string, Promise<BypassPermission>>();
  /** How many of them each caller has begun. */
  readonly #begun = new Map<string, number>();

  constructor(api: Pick<ApiClient, "create">, ports: Pick<Ports, "clock" | "timers">) {
    this.#api = api;
    this.#ports = ports;
  }

  /** Never rejects; resolves within half of `timeoutMs`. `address` is the caller's. */
  async mayBypass(user: User, namespace: string, timeoutMs: number, address = ""): Promise<BypassPermission> {
    const text = JSON.stringify([namespace, user.username, user.uid, user.groups, user.extra]);
    // No apiserver authenticates such a user, and the cell must not receive a forged one.
    if (text.length > MAX_USER_LENGTH) return "unknown";
    const key = hash("sha256", text, "base64");
    const known = this.#known.get(key);
    if (known !== undefined && this.#ports.clock.monotonicMs() - known.atMs < REMEMBERED_MS) return known.permission;
    const inFlight = this.#inFlight.get(key);
    const caller = text.length > MAX_OWN_LENGTH ? "large" : address;
    if (inFlight === undefined && (this.#begun.get(caller) ?? 0) >= MAX_IN_FLIGHT) return "unknown";
    return this.#waitFor(inFlight ?? this.#start(key, caller, user, namespace), timeoutMs * WAITED_FRACTION);
  }

  #count(caller: string, change: 1 | -1): void {
    const begun = (this.#begun.get(caller) ?? 0) + change;
    if (begun > 0) this.#begun.set(caller, begun);
    else this.#begun.delete(caller);
  }

  #start(key: string, caller: string, user: User, namespace: string): Promise<BypassPermission> {
    this.#count(caller, 1);
    const call = this.#call(user, namespace).then((permission) => {
      this.#count(caller, -1);
      this.#inFlight.delete(key);
      if (permission !== "unknown") this.#known.set(key, { permission, atMs: this.#ports.clock.monotonicMs() });
      return permission;
    });
    this.#inFlight.set(key, call);
    return call;
  }

  /** Requests that share a call keep their own deadlines. */
  #waitFor(call: Promise<BypassPermission>, limitMs: number): Promise<BypassPermission> {
    return new Promise((resolve) => {
      const timer = this.#ports.timers.after(Math.max(0, limitMs), () => resolve("unknown"));
      void call.then((permission) => {
        timer.cancel();
        resolve(permission);
      });
    });
  }

  async #call({ username, uid, groups, extra }: User, namespace: string): Promise<BypassPermission> {
    const body = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SubjectAccessReview",
      spec: {
        user: username,
        uid,
        groups,
        extra,
        resourceAttributes: { group: GROUP, resource: PLURAL, verb: "bypass", namespace },
      },
    };
    const endMs = this.#ports.clock.monotonicMs() + MAX_CALL_MS;
    const result = await retryThrottled(this.#ports, endMs, (timeoutMs) =>
      this.#api.create(PATH, body, isAllowed, { timeoutMs }),
    );
    if (result.kind !== "ok") return "unknown";
    return result.object ? "allowed" : "denied";
  }
}

/** `status.allowed`; an unreadable response counts as false. */
function isAllowed(raw: unknown): boolean {
  return valueAt(raw, "status", "allowed") === true;
}
