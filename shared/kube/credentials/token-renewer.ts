/**
 * Renews the tokens of joined cores (docs/decisions/0010-a-core-token-renews-itself.md): requests a new token from the
 * core, and writes the kubeconfig with this token to its Secret in the cell. The kubelet updates the mounted Secret of
 * all replicas, which read their kubeconfig again. Loaded after the start.
 */
import { readFile } from "node:fs/promises";
import * as v from "valibot";
import type { Ports } from "../../runtime/clock.ts";
import type { ApiClient } from "../client/api-client.ts";
import { corePath } from "../client/api-path.ts";
import { errorOf } from "../client/api-result.ts";
import {
  type AccountToken,
  homeOf,
  issuedToken,
  KUBECONFIG_KEY,
  readAccountToken,
  renewalMs,
  type TokenHome,
  tokenRequest,
} from "./account-token.ts";

const CALL_TIMEOUT_MS = 10_000;
/** The apiserver's status for a JSON patch whose test fails. Also for a Secret that is immutable. */
const UNPROCESSABLE = 422;
/** A kubelet updates a mounted Secret within some two minutes, unless it is mounted by subPath. */
const ARRIVES_WITHIN_MS = 300_000;

type Api = Pick<ApiClient, "create" | "patch">;

interface RenewedCore {
  readonly name: string;
  /** The kubeconfig file that the process uses. */
  readonly path: string;
  readonly api: Api;
  /** The client of a cell; undefined for one that this process does not know. */
  readonly cellApi: (cell: string) => Api | undefined;
  readonly ports: Pick<Ports, "clock" | "random">;
  readonly onEvent: (event: TokenEvent) => void;
}

/** The result of a check, and of a renewal. */
export type TokenEvent =
  /** The token in the kubeconfig; undefined where it has no token. */
  | { readonly kind: "held"; readonly token: AccountToken | undefined }
  | { readonly kind: "renewed"; readonly core: string; readonly expires: string }
  | { readonly kind: "failed"; readonly core: string; readonly expires: string; readonly error: unknown };

/** The present token in the kubeconfig. */
interface HeldToken {
  readonly text: string;
  readonly token: string;
  readonly read: AccountToken;
  readonly home: TokenHome | undefined;
}

/** The token of one core. */
export class TokenRenewer {
  readonly #core: RenewedCore;
  /** Constant for the life of the process, so that replicas keep their order. */
  readonly #fraction: number;
  /**
   * The token that was replaced in the Secret, and the monotonic time. The mounted file still has it until the kubelet
   * updates the file.
   */
  #replaced = { token: "", sinceMs: 0 };

  constructor(core: RenewedCore) {
    this.#core = core;
    this.#fraction = core.ports.random.fraction();
  }

  /** Renews the token if it is due. Resolves with false after a failure, where the present token stays in use. */
  async check(signal: AbortSignal): Promise<boolean> {
    const { name, path, ports, onEvent } = this.#core;
    const held = await readHeld(path);
    onEvent({ kind: "held", token: held?.read });
    if (held?.home === undefined) return true;
    if (ports.clock.nowMs() < renewalMs(held.read, this.#fraction)) return true;
    const nowMs = ports.clock.monotonicMs();
    const isWaiting = held.token === this.#replaced.token;
    if (isWaiting && nowMs - this.#replaced.sinceMs < ARRIVES_WITHIN_MS) return true;
    const fields = { core: name, expires: new Date(held.read.expiresMs).toISOString() };
    try {
      this.#replaced.token = "";
      if (isWaiting) throw notArrived(held.home);
      await this.#renew(held, held.home, signal);
      this.#replaced = { token: held.token, sinceMs: nowMs };
      onEvent({ kind: "renewed", ...fields });
      return true;
    } catch (error) {
      if (signal.aborted) return true;
      onEvent({ kind: "failed", ...fields, error });
      return false;
    }
  }

  async #renew({ text, token, read }: HeldToken, home: TokenHome, signal: AbortSignal): Promise<void> {
    const { account, boundTo } = read;
    if (account === undefined || boundTo === undefined) throw new Error("the token is bound to no Secret: join again");
    const cell = this.#core.cellApi(home.cell);
    if (cell === undefined) throw new Error(`the kubeconfig is of another cell, ${home.cell}`);
    const call = { timeoutMs: CALL_TIMEOUT_MS, signal };
    const path = corePath("serviceaccounts", account.namespace, account.name, "token");
    const request = tokenRequest(read.expiresMs - read.issuedMs, boundTo);
    const issued = await this.#core.api.create(path, request, issuedToken, call);
    if (issued.kind !== "ok") throw errorOf(issued);
    const key = `/data/${KUBECONFIG_KEY}`;
    const patch = [
      // Only one of several replicas writes, and none overwrites the result of a new join.
      { op: "test", path: key, value: base64(text) },
      { op: "replace", path: key, value: base64(text.replaceAll(token, issued.object)) },
    ];
    const secret = corePath("secrets", home.namespace, home.secret);
    const written = await cell.patch(secret, "application/json-patch+json", patch, () => undefined, call);
    if (written.kind === "ok" || (written.kind === "rejected" && written.status === UNPROCESSABLE)) return;
    throw errorOf(written, `the Secret ${home.namespace}/${home.secret} does not exist: join again`);
  }
}

function notArrived({ namespace, secret }: TokenHome): Error {
  return new Error(
    `no renewed token came from the Secret ${namespace}/${secret}: is it immutable, or mounted by subPath?`,
  );
}

const OneUser = v.object({ users: v.tuple([v.object({ user: v.looseObject({ token: v.optional(v.string()) }) })]) });

/** The token of the kubeconfig's only user. The credentials report an unusable kubeconfig. */
async function readHeld(path: string): Promise<HeldToken | undefined> {
  try {
    const text = await readFile(path, "utf8");
    const raw: unknown = text.trimStart().startsWith("{") ? JSON.parse(text) : (await import("js-yaml")).load(text);
    const [{ user }] = v.parse(OneUser, raw).users;
    const { token = "" } = user;
    const read = readAccountToken(token);
    return read && { text, token, read, home: homeOf(user) };
  } catch {
    return undefined;
  }
}

const base64 = (text: string): string => Buffer.from(text).toString("base64");
