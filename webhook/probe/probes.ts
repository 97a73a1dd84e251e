/**
 * Asks the owners of workloads (design 9). Each endpoint has a bounded number of calls at once, a line with an end, and a circuit, so
 * that one that is slow or down costs the others nothing. No answer is a refusal.
 */
import type { Ports } from "../../shared/runtime/clock.ts";
import { Circuit } from "./circuit-breaker.ts";
import { GrpcWire } from "./grpc.ts";
import { HttpWire } from "./http.ts";
import type { ProbeReply } from "./message.ts";
import type { OwnerAnswer, OwnerQuestion, ProbeResult, ProbeSpec } from "./owner.ts";
import { describeError, type Wire } from "./probe-client.ts";
import { Places } from "./probe-endpoints.ts";

/** Calls to one endpoint at once. */
export const CALLS_AT_ONCE = 16;
/** Questions that wait for one of them; beyond it the answer is "busy" at once. */
export const MAX_WAITING = 500;
/** x-pdb's own. */
export const DEFAULT_TIMEOUT_MS = 2_000;
/** Endpoints that are remembered; the one that was asked least recently is forgotten first. */
const MAX_ENDPOINTS = 500;
/** A refusal is read by people, and what an owner writes is not ours to trust. */
const MAX_SAID = 200;

interface Endpoint {
  wire: Wire | undefined;
  /** Certificates that the wire was made with. */
  caBundle: string | undefined;
  /** Why it can't be asked at all. */
  problem: string | undefined;
  /** It could not be asked, or did not answer: perhaps because of certificates that have been replaced since. */
  isDoubted: boolean;
  readonly circuit: Circuit;
  readonly places: Places;
  lastFailure: string;
}

export interface ProbeEvent {
  readonly result: ProbeResult;
  readonly endpoint: string;
  readonly tookMs: number;
}

export interface ProbesOptions {
  readonly ports: Ports;
  readonly onAsked: (event: ProbeEvent) => void;
  /**
   * PEM certificates where the protector names none; undefined is the system's. Asked for when an endpoint is met, and again when that could
   * not be asked or did not answer. What it throws then keeps a new endpoint from being asked.
   */
  readonly defaultCa?: () => string | undefined;
  /** The real ones by default. */
  readonly connect?: (probe: ProbeSpec) => Wire;
}

function connectTo({ endpoint, protocol, caBundle, insecure = false }: ProbeSpec): Wire {
  const options = { endpoint, caBundle, insecure };
  return protocol === "HTTP" ? new HttpWire(options) : new GrpcWire(options);
}

function said(text: string): string {
  const clean = text.replace(/\p{Cc}+/gu, " ").trim();
  return clean.length > MAX_SAID ? `${clean.slice(0, MAX_SAID)}...` : clean;
}

export class Probes {
  readonly #options: ProbesOptions;
  readonly #endpoints = new Map<string, Endpoint>();

  constructor(options: ProbesOptions) {
    this.#options = options;
  }

  /** Endpoints that are not asked at the moment, because they did not answer. */
  get openCircuits(): number {
    return [...this.#endpoints.values()].filter(({ circuit }) => circuit.isOpen).length;
  }

  /** Never rejects; resolves before the question's deadline. */
  async ask(question: OwnerQuestion): Promise<OwnerAnswer> {
    const { clock } = this.#options.ports;
    const startedMs = clock.monotonicMs();
    const answer = await this.#ask(question, startedMs);
    const tookMs = clock.monotonicMs() - startedMs;
    this.#options.onAsked({ result: answer.result, endpoint: question.probe.endpoint, tookMs });
    return answer;
  }

  close(): void {
    for (const { wire } of this.#endpoints.values()) wire?.close();
    this.#endpoints.clear();
  }

  async #ask(question: OwnerQuestion, nowMs: number): Promise<OwnerAnswer> {
    const { endpoint: where } = question.probe;
    const endpoint = this.#endpoint(question.probe);
    const { wire } = endpoint;
    if (wire === undefined) {
      return { result: "failed", message: `has a probe that can't be asked: ${endpoint.problem ?? ""}` };
    }
    const untilMs = Math.min(question.deadlineMs, nowMs + (question.probe.timeoutMillis ?? DEFAULT_TIMEOUT_MS));
    if (!(await endpoint.places.take(untilMs))) {
      return { result: "overloaded", message: `has too many questions waiting for its probe ${where}` };
    }
    try {
      if (!endpoint.circuit.enter()) return down(endpoint, where);
      return this.#heard(endpoint, where, await this.#call(wire, question, untilMs));
    } catch (error) {
      endpoint.circuit.failed();
      endpoint.isDoubted = true;
      endpoint.lastFailure = said(describeError(error));
      return { result: "failed", message: `could not ask its probe ${where}: ${endpoint.lastFailure}` };
    } finally {
      endpoint.places.giveBack();
    }
  }

  async #call(wire: Wire, question: OwnerQuestion, untilMs: number): Promise<ProbeReply> {
    const { clock, timers } = this.#options.ports;
    const giveUp = new AbortController();
    const timer = timers.after(Math.max(0, untilMs - clock.monotonicMs()), () => giveUp.abort());
    try {
      return await wire.ask(question, giveUp.signal);
    } finally {
      timer.cancel();
    }
  }

  #heard({ circuit }: Endpoint, where: string, { isAllowed, error }: ProbeReply): OwnerAnswer {
    circuit.answered();
    // As x-pdb has it, an error is a refusal whatever else was said.
    if (isAllowed && error === "") return { result: "allowed", message: "" };
    const why = error === "" ? "" : `: ${said(error)}`;
    return { result: "refused", message: `is told by its probe ${where} that it may not go${why}` };
  }

  #endpoint(probe: ProbeSpec): Endpoint {
    const key = JSON.stringify([probe.protocol, probe.endpoint, probe.insecure, probe.caBundle]);
    const known = this.#endpoints.get(key);
    if (known !== undefined) {
      this.#endpoints.delete(key);
      this.#endpoints.set(key, known);
      if (known.isDoubted) this.#connect(known, probe);
      return known;
    }
    const [oldest] = this.#endpoints;
    if (oldest !== undefined && this.#endpoints.size >= MAX_ENDPOINTS) {
      oldest[1].wire?.close();
      this.#endpoints.delete(oldest[0]);
    }
    const made = this.#make(probe);
    this.#endpoints.set(key, made);
    return made;
  }

  #make(probe: ProbeSpec): Endpoint {
    const { ports } = this.#options;
    const made: Endpoint = {
      wire: undefined,
      caBundle: undefined,
      problem: undefined,
      isDoubted: false,
      circuit: new Circuit(ports.clock, ports.random),
      places: new Places(ports, CALLS_AT_ONCE, MAX_WAITING),
      lastFailure: "",
    };
    this.#connect(made, probe);
    return made;
  }

  /** Makes the wire, or another one where the certificates have changed; what can't be made leaves the one that is there. */
  #connect(endpoint: Endpoint, probe: ProbeSpec): void {
    const { defaultCa, connect = connectTo } = this.#options;
    endpoint.isDoubted = false;
    try {
      const caBundle = probe.caBundle ?? defaultCa?.();
      if (endpoint.wire !== undefined && endpoint.caBundle === caBundle) return;
      // The wire before is not closed: others may be waiting for its answer. Its connections end when nobody uses them.
      endpoint.wire = connect(caBundle === undefined ? probe : { ...probe, caBundle });
      endpoint.caBundle = caBundle;
      endpoint.problem = undefined;
    } catch (error) {
      endpoint.problem = describeError(error);
      endpoint.isDoubted = true;
    }
  }
}

function down({ circuit, lastFailure }: Endpoint, where: string): OwnerAnswer {
  const again = circuit.waitMs === 0 ? "is being tried" : `is tried again in ${Math.ceil(circuit.waitMs / 1000)} s`;
  return { result: "down", message: `has a probe that does not answer: ${where} ${again} (${lastFailure})` };
}
