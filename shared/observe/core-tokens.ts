/** The renewal of the tokens for joined cores, with its metrics and log lines. Loaded after the start. */
import { ApiClient } from "../kube/client/api-client.ts";
import type { Transport } from "../kube/client/transport.ts";
import type { AccountToken } from "../kube/credentials/account-token.ts";
import { type TokenEvent, TokenRenewer } from "../kube/credentials/token-renewer.ts";
import { Backoff } from "../runtime/backoff.ts";
import { type Ports, sleep } from "../runtime/clock.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

/** Shorter than a kubelet's update of a mounted Secret, and much shorter than the shortest life of ten minutes. */
const CHECK_EVERY_MS = 15_000;
const FIRST_RETRY_MS = 5_000;
const MAX_RETRY_MS = 300_000;
const OUTCOMES = ["renewed", "failed"] as const;
const MAX_CORES = 100;

export interface CoreTokensOptions {
  /** The path on this machine. */
  readonly mounted: (path: string) => string;
  /** `path` is that of the kubeconfig. A core without one is ignored: the kubelet renews the token of a pod. */
  readonly cores: readonly {
    readonly name: string;
    readonly path: string | undefined;
    readonly transport: Transport;
  }[];
  readonly cells: readonly { readonly name: string; readonly transport: Transport | undefined }[];
  readonly ports: Ports;
  readonly metrics: Metrics;
  readonly log: Log;
}

/** Starts to renew the tokens of the cores; returns a function that stops. */
export function followCoreTokens({ cores, cells, ports, metrics, log, mounted }: CoreTokensOptions): () => void {
  const onEvent = observeTokens(metrics, log);
  const ending = new AbortController();
  for (const { name, path, transport } of cores) {
    if (!path) continue;
    const renewer = new TokenRenewer({
      ...{ name, path: mounted(path), ports, api: new ApiClient(transport), onEvent: onEvent(name) },
      cellApi: (cell) => {
        const found = cells.find((one) => one.name === cell)?.transport;
        return found && new ApiClient(found);
      },
    });
    void follow(renewer, ports, ending.signal);
  }
  return () => ending.abort();
}

async function follow(renewer: TokenRenewer, ports: Ports, signal: AbortSignal): Promise<void> {
  const backoff = new Backoff({ initialMs: FIRST_RETRY_MS, maxMs: MAX_RETRY_MS }, ports.random);
  while (!signal.aborted) {
    const isFine = await renewer.check(signal);
    if (isFine) backoff.reset();
    await sleep(ports, isFine ? CHECK_EVERY_MS : backoff.nextMs(), signal);
  }
}

function observeTokens(metrics: Metrics, log: Log): (core: string) => (event: TokenEvent) => void {
  const held = new Map<string, AccountToken>();
  const labels = { core: { max: MAX_CORES } };
  const gauge = (name: string, help: string, timeMs: (token: AccountToken) => number): void =>
    metrics.gaugeFrom({ name, help, labels }, (set) => {
      for (const [core, token] of held) set({ core }, timeMs(token) / 1000);
    });
  gauge("core_token_issued_timestamp_seconds", "When the token for a core was issued.", ({ issuedMs }) => issuedMs);
  gauge("core_token_expiry_timestamp_seconds", "When the token for a core expires.", ({ expiresMs }) => expiresMs);
  const renewals = metrics.counter({
    name: "core_token_renewals_total",
    help: "Renewals of the token for a core, by what became of them.",
    labels: { ...labels, outcome: OUTCOMES },
  });
  // Does not use `event-table.ts`, which the webhook's start loads in one bundle with other code.
  return (core) => (event) => {
    if (event.kind !== "held") {
      const { kind: outcome, ...fields } = event;
      renewals.inc({ core, outcome });
      if (outcome === "renewed") log.info(fields, "the token for the core is renewed");
      else log.warn(fields, "the token for the core could not be renewed; it serves until it ends");
    } else if (event.token === undefined) held.delete(core);
    else held.set(core, event.token);
  };
}
