/**
 * Maintains the certificates by the rules of `plan.ts`: reads the four objects, takes one step, and reads them again.
 * Replicas need no leader election, because each write is a compare-and-swap on the version that was read.
 */

import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import {
  fingerprintOf,
  PUBLISHED_CONFIG_MAP,
  PUBLISHED_KEY,
  splitCertificates,
  TRUSTED_CONFIG_MAP,
} from "../../shared/certificates/ca-bundle.ts";
import type {
  createCertificateAuthority,
  issueCertificate,
  KeyAndCertificate,
} from "../../shared/certificates/x509.ts";
import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import { corePath } from "../../shared/kube/client/api-path.ts";
import { type ApiFailure, describeFailure } from "../../shared/kube/client/api-result.ts";
import { type Ports, sleep } from "../../shared/runtime/clock.ts";
import { ROTATE_CA_ANNOTATION } from "../../shared/schema/annotations.ts";
import {
  AUTHORITY_KEY,
  AUTHORITY_SECRET,
  decoded,
  encoded,
  pairOf,
  parseStored,
  SERVING_SECRET,
  type StoredObject,
  withData,
} from "./objects.ts";
import {
  BACKDATE_MS,
  type CertificateState,
  type CertificateStep,
  type CertificateTerms,
  nextStep,
  untrusting,
} from "./plan.ts";
import type { ServerClock } from "./server-clock.ts";

/** Most steps of one round: an authority, its publication, a certificate, and a read that finds nothing to do. */
const MAX_STEPS = 4;
const HOUR_MS = 3_600_000;
const COMMON_NAME = "podseidon webhook";

export type CertificateEvent =
  | CertificateStep
  /** Nothing was changed; the keeper tries again after the interval. */
  | { readonly kind: "failed"; readonly object: string; readonly tag: ApiFailure["kind"]; readonly message: string };

/** `shared/certificates/x509.ts` as a port: signing takes real time, and a virtual clock has to wait for it. */
export interface CertificateIssuer {
  readonly createCertificateAuthority: typeof createCertificateAuthority;
  readonly issueCertificate: typeof issueCertificate;
}

export interface CertificateKeeperOptions {
  readonly api: ApiClient;
  readonly ports: Ports;
  /** Watches the transport of `api`. */
  readonly serverClock: Pick<ServerClock, "takeAheadMs">;
  readonly issuer: CertificateIssuer;
  readonly namespace: string;
  readonly terms: CertificateTerms;
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly onEvent: (event: CertificateEvent) => void;
}

/** The objects that were read, for the next write, and the state in them. */
interface Gathered {
  readonly authority: StoredObject;
  readonly serving: StoredObject;
  readonly published: StoredObject;
  readonly state: CertificateState;
}

class CallFailed extends Error {
  override readonly name = "CallFailed";
  readonly object: string;
  readonly tag: ApiFailure["kind"];

  constructor(object: string, failure: ApiFailure) {
    super(messageOf(object, failure));
    this.object = object;
    this.tag = failure.kind;
  }
}

export class CertificateKeeper {
  readonly #options: CertificateKeeperOptions;
  #state: CertificateState | undefined;
  /**
   * The monotonic time since which every cell trusts this publication. The fingerprint distinguishes it from a
   * publication by another replica, or one whose response was lost: cells may trust such a publication before this
   * process sees it.
   */
  #trusted: { readonly fingerprint: string; readonly sinceMs: number } | undefined;
  #problem: string | undefined = "the certificates were not looked at yet";

  constructor(options: CertificateKeeperOptions) {
    this.#options = options;
  }

  /** The state that was last read; undefined before the first read. */
  get state(): CertificateState | undefined {
    return this.#state;
  }

  /** Why this process can't maintain the certificates, for people; undefined when it can. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Works until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { ports, intervalMs } = this.#options;
    while (!signal.aborted) {
      await this.#reconcile(signal);
      await sleep(ports, intervalMs, signal);
    }
  }

  async #reconcile(signal: AbortSignal): Promise<void> {
    const { ports, terms, onEvent } = this.#options;
    try {
      for (let steps = 0; steps < MAX_STEPS && !signal.aborted; steps++) {
        const gathered = await this.#gather();
        const { state } = gathered;
        this.#state = state;
        this.#checkClock();
        const step = nextStep(state, terms, ports.clock.nowMs(), this.#trustedForMs(state));
        await this.#take(step, gathered);
        onEvent(step);
        if (step.kind === "none" || step.kind === "wait") break;
      }
      this.#problem = undefined;
    } catch (error) {
      if (!(error instanceof CallFailed)) throw error;
      const { object, tag, message } = error;
      this.#problem = message;
      onEvent({ kind: "failed", object, tag, message });
    }
  }

  /** By a clock that is wrong, certificates that apiservers accept would give way to others that they do not. */
  #checkClock(): void {
    const aheadMs = this.#options.serverClock.takeAheadMs() ?? 0;
    if (Math.abs(aheadMs) <= BACKDATE_MS) return;
    const by = `${Math.floor(Math.abs(aheadMs) / HOUR_MS)} h ${aheadMs > 0 ? "ahead of" : "behind"}`;
    const error = new Error(`this machine's is ${by} the apiserver's: nothing is changed until they agree`);
    throw new CallFailed("clock", { kind: "unavailable", error, sent: false });
  }

  #trustedForMs(state: CertificateState): number | undefined {
    const nowMs = this.#options.ports.clock.monotonicMs();
    const fingerprint = fingerprintOf(state.published);
    if (state.trusted.size === 0 || untrusting(state).length > 0) this.#trusted = undefined;
    else if (this.#trusted?.fingerprint !== fingerprint) this.#trusted = { fingerprint, sinceMs: nowMs };
    return this.#trusted === undefined ? undefined : nowMs - this.#trusted.sinceMs;
  }

  async #gather(): Promise<Gathered> {
    const [authority, serving, published, trusted] = await Promise.all([
      this.#read("secrets", AUTHORITY_SECRET),
      this.#read("secrets", SERVING_SECRET),
      this.#read("configmaps", PUBLISHED_CONFIG_MAP),
      this.#read("configmaps", TRUSTED_CONFIG_MAP),
    ]);
    const state: CertificateState = {
      authority: pairOf(authority, AUTHORITY_KEY, "ca.key"),
      rotationAsked: authority.metadata.annotations?.[ROTATE_CA_ANNOTATION] !== undefined,
      published: splitCertificates(published.data?.[PUBLISHED_KEY] ?? ""),
      serving: pairOf(serving, "tls.crt", "tls.key"),
      issuer: decoded(serving, AUTHORITY_KEY),
      trusted: new Map(Object.entries(trusted.data ?? {})),
    };
    return { authority, serving, published, state };
  }

  async #take(step: CertificateStep, { authority, serving, published, state }: Gathered): Promise<void> {
    const { terms, ports, issuer } = this.#options;
    const nowMs = ports.clock.nowMs();
    const validity = (lifetimeMs: number, untilMs = Infinity) => ({
      notBeforeMs: nowMs - BACKDATE_MS,
      notAfterMs: Math.min(nowMs + lifetimeMs, untilMs),
    });
    if (step.kind === "createAuthority") {
      const made = await issuer.createCertificateAuthority({
        commonName: `${COMMON_NAME} CA`,
        ...validity(terms.authorityLifetimeMs),
      });
      const data = { [AUTHORITY_KEY]: encoded(made.certificatePem), "ca.key": encoded(made.privateKeyPem) };
      await this.#write("secrets", AUTHORITY_SECRET, withData(authority, data, ROTATE_CA_ANNOTATION));
    }
    if (step.kind === "publish") {
      const data = { [PUBLISHED_KEY]: step.certificates.join("") };
      await this.#write("configmaps", PUBLISHED_CONFIG_MAP, withData(published, data));
    }
    if (step.kind === "issue" && state.authority !== undefined) {
      const made = await issuer.issueCertificate(state.authority, {
        commonName: COMMON_NAME,
        // An apiserver that calls an address looks it up among the certificate's addresses, never among the names.
        dnsNames: terms.dnsNames.filter((name) => isIP(name) === 0),
        ipAddresses: terms.dnsNames.filter((name) => isIP(name) !== 0),
        usages: ["server"],
        // No apiserver accepts it for longer than its authority, which may be an operator's.
        ...validity(terms.servingLifetimeMs, validUntilMs(state.authority)),
      });
      const data = {
        "tls.crt": encoded(made.certificatePem),
        "tls.key": encoded(made.privateKeyPem),
        [AUTHORITY_KEY]: encoded(state.authority.certificatePem),
      };
      await this.#write("secrets", SERVING_SECRET, withData(serving, data));
    }
  }

  async #read(resource: "secrets" | "configmaps", name: string): Promise<StoredObject> {
    const { api, timeoutMs } = this.#options;
    const result = await api.get(this.#path(resource, name), parseStored, { timeoutMs });
    if (result.kind === "ok") return result.object;
    throw new CallFailed(`${resource}/${name}`, result);
  }

  async #write(resource: "secrets" | "configmaps", name: string, object: StoredObject): Promise<void> {
    const { api, timeoutMs } = this.#options;
    const result = await api.update(this.#path(resource, name), object, parseStored, { timeoutMs });
    // After a conflict, the next read shows the write of another replica.
    if (result.kind !== "ok" && result.kind !== "conflict") throw new CallFailed(`${resource}/${name}`, result);
  }

  #path(resource: "secrets" | "configmaps", name: string): string {
    return corePath(resource, this.#options.namespace, name);
  }
}

function validUntilMs({ certificatePem }: KeyAndCertificate): number {
  return new X509Certificate(certificatePem).validToDate.getTime();
}

function messageOf(object: string, failure: ApiFailure): string {
  if (failure.kind === "gone") return `${object} is not there: apply the manifests, which make it empty`;
  return `${object}: ${describeFailure(failure)}`;
}
