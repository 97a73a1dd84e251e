/**
 * The process of a controller. `runController` does what all controllers share: flags, log, metrics, health, access to
 * clusters, leader election and SIGTERM. The differences are in each controller's `controller.ts`; read one of these
 * next.
 */
import { hostname } from "node:os";
import { createHttpsTransport } from "../shared/kube/client/https-transport.ts";
import type { Transport } from "../shared/kube/client/transport.ts";
import type { ClusterAccess } from "../shared/kube/credentials/cluster-access.ts";
import { accessOrExit } from "../shared/kube/credentials/kubeconfig.ts";
import { LeaderElector, type LeaderElectorOptions } from "../shared/kube/election/leader-election.ts";
import { observeClocks } from "../shared/observe/clock-observer.ts";
import { createLog, type Log } from "../shared/observe/log.ts";
import { Metrics } from "../shared/observe/metrics.ts";
import {
  observeDroppedLines,
  observeKubeconfigs,
  observeLeaderElection,
  observeLifecycle,
} from "../shared/observe/process-observer.ts";
import type { Ports } from "../shared/runtime/clock.ts";
import { HealthServer, type ServerFactory } from "../shared/runtime/health-server.ts";
import { Lifecycle, type Part } from "../shared/runtime/lifecycle.ts";
import type { observeOptions } from "../shared/runtime/options/common-options.ts";
import type { kubeconfigOptions, leaderElectionOptions } from "../shared/runtime/options/controller-options.ts";
import type { OptionValues } from "../shared/runtime/options/options.ts";
import { systemPorts as ports } from "../shared/runtime/system-ports.ts";
import { systemProcess } from "../shared/runtime/system-process.ts";
import { version } from "../shared/runtime/version.ts";

/** Namespace of the Lease, and of the project's other objects, where the process does not know its own. */
export const DEFAULT_NAMESPACE = "podseidon-system";

/** For Kubernetes Events and quorum reads, beside one connection for each worker. */
const OTHER_CALLS = 4;

type ControllerFlags = OptionValues<typeof kubeconfigOptions & typeof observeOptions>;

/** The flags of leader election, and the name of the Lease. */
interface LeaseFlags extends OptionValues<typeof leaderElectionOptions> {
  readonly lease: string;
}

/** What a controller declares. */
export interface Controller<F extends ControllerFlags> {
  /** The program and the user agent, such as `podseidon-aggregator`. */
  readonly name: string;
  /** Reads the command line, or prints what is wrong with it and exits. */
  readonly flags: () => Promise<F>;
  /** From SIGTERM to the exit; below the 30 s of the pod's terminationGracePeriodSeconds. */
  readonly graceMs: number;
  /** Without an election, the controller always works. */
  readonly election?: (flags: F) => LeaseFlags;
  /** Name of the cluster of --kubeconfig in `clock_skew_seconds`; without a name, no clocks are compared. */
  readonly server?: string;
  /** Concurrent calls of the controller to the cluster of --kubeconfig, where an option sets their number. */
  readonly concurrency?: (flags: F) => number;
  readonly build: (context: ControllerContext<F>) => ControllerParts | Promise<ControllerParts>;
}

/** The inputs that a controller is built from. */
export interface ControllerContext<F> {
  readonly flags: F;
  readonly ports: Ports;
  readonly log: Log;
  readonly metrics: Metrics;
  /** The cluster of --kubeconfig. */
  readonly cluster: ClusterAccess;
  readonly transport: Transport;
  /** The namespace that holds the Lease. */
  readonly namespace: string;
  /** True while no other process can hold the Lease. To be asked before each write. */
  readonly mayWrite: () => boolean;
  /**
   * Connects to another cluster, which `clock_skew_seconds` calls `server`, with room for `concurrency` concurrent
   * calls. An unusable kubeconfig ends the process.
   */
  readonly connect: (server: string, flag: string, kubeconfig: string, concurrency: number) => Promise<Transport>;
}

/** The running parts of a controller. */
export interface ControllerParts {
  /** Begins with each leadership and ends soon after its signal aborts. */
  readonly lead: (signal: AbortSignal) => Promise<void>;
  /** Takes each version of the Lease that this process sees, also on a standby. */
  readonly leaseSeen?: (version: string) => void;
  /**
   * Readiness checks, and parts that also run on a standby. They start in order before the election, and stop in
   * reverse order after it.
   */
  readonly parts?: readonly Part[];
}

/** Runs a controller until SIGTERM; resolves with the exit code. */
export async function runController<F extends ControllerFlags>(controller: Controller<F>): Promise<number> {
  const { name, graceMs, server } = controller;
  const flags = await controller.flags();
  const metrics = new Metrics({ processMetrics: true });
  const onDropped = observeDroppedLines(metrics);
  const log = createLog({ component: name.replace("podseidon-", ""), level: flags.logLevel, onDropped });
  const onKubeconfig = observeKubeconfigs(metrics, log);
  const cluster = await accessOrExit(name, "--kubeconfig", flags.kubeconfig, onKubeconfig);
  const clocks = server === undefined ? undefined : observeClocks(metrics, ports.clock);
  const transports: Transport[] = [];
  const open = (access: ClusterAccess, at = "", concurrency?: number): Transport => {
    const sockets = concurrency === undefined ? {} : { maxRequestSockets: concurrency + OTHER_CALLS };
    const transport = createHttpsTransport(access, { ports, userAgent: `${name}/${version}`, ...sockets });
    transports.push(transport);
    return clocks?.watch(at, transport) ?? transport;
  };
  const lease = controller.election?.(flags);
  const context: ControllerContext<F> = {
    ...{ flags, ports, log, metrics, cluster },
    transport: open(cluster, server, controller.concurrency?.(flags)),
    namespace: (lease?.leaderElectNamespace || cluster.namespace) ?? DEFAULT_NAMESPACE,
    mayWrite: () => leader.isLeader,
    connect: async (at, flag, kubeconfig, concurrency) =>
      open(await accessOrExit(name, flag, kubeconfig, onKubeconfig), at, concurrency),
  };
  const parts = await controller.build(context);
  // The Lease has its own connections, so that its renewal does not wait for other calls.
  const leader: LeaderRunner = leaderRunner(lease, open(cluster, server), context, parts);
  const guardOf = async (metricsAuth: string): Promise<ServerFactory | undefined> => {
    if (metricsAuth === "") return undefined;
    const { guardedServers } = await import("../shared/observe/metrics-auth.ts");
    const access = (path: string) => accessOrExit(name, "--metrics-auth", path, onKubeconfig);
    return guardedServers(metricsAuth, async (path) => open(await access(path)), ports);
  };
  const onEvent = observeLifecycle(log);
  const lifecycle = new Lifecycle({ ports, process: systemProcess, unreadyMs: 0, graceMs, onEvent });
  const health = new HealthServer(flags, lifecycle, metrics, await guardOf(flags.metricsAuth));
  lifecycle
    .add({ name: "health", start: () => health.start(), stop: () => health.stop() })
    .add({ name: "transports", stop: () => transports.forEach((one) => void one.close()) });
  for (const part of parts.parts ?? []) lifecycle.add(part);
  lifecycle.add({ name: "leadership", start: () => leader.start(), stop: () => leader.stop() });
  const code = await lifecycle.run();
  log.flush();
  return code;
}

function leaderRunner<F>(
  flags: LeaseFlags | undefined,
  transport: Transport,
  { namespace, metrics, log }: ControllerContext<F>,
  { lead, leaseSeen }: ControllerParts,
): LeaderRunner {
  if (flags === undefined) return new LeaderRunner(undefined, lead);
  // The metrics exist even without an election, because dashboards and alerts query them.
  const observer = observeLeaderElection(metrics, log);
  if (!flags.leaderElect) return new LeaderRunner(undefined, lead);
  const election: Election = {
    ...{ transport, ports, namespace },
    name: flags.lease,
    identity: `${hostname()}_${ports.random.token()}`,
    leaseDurationMs: flags.leaseDuration,
    renewDeadlineMs: flags.renewDeadline,
    retryPeriodMs: flags.retryPeriod,
    onEvent: observer.observe(flags.lease),
    ...(leaseSeen && { onSeen: leaseSeen }),
  };
  const runner = new LeaderRunner(election, lead);
  observer.track(flags.lease, { isLeader: () => runner.isLeader });
  return runner;
}

/** How a candidate takes part in the election for a Lease. */
export type Election = Omit<LeaderElectorOptions, "onStartedLeading" | "onStoppedLeading">;

/** Runs a controller's work while its Lease is held, or all the time without an election. */
export class LeaderRunner {
  readonly #lead: (signal: AbortSignal) => Promise<void>;
  readonly #alone = new AbortController();
  readonly #elector: LeaderElector | undefined;
  #work: Promise<void> = Promise.resolve();

  /** `lead` begins with each leadership and ends soon after its signal aborts. */
  constructor(election: Election | undefined, lead: (signal: AbortSignal) => Promise<void>) {
    this.#lead = lead;
    if (election === undefined) return;
    this.#elector = new LeaderElector({
      ...election,
      onStartedLeading: (signal) => this.#begin(signal),
      onStoppedLeading: () => this.#work,
    });
  }

  get isLeader(): boolean {
    return this.#elector === undefined ? !this.#alone.signal.aborted : this.#elector.isLeader();
  }

  start(): void {
    if (this.#elector === undefined) this.#begin(this.#alone.signal);
    else this.#elector.start();
  }

  /** Ends the work, then releases the Lease. */
  async stop(): Promise<void> {
    this.#alone.abort();
    await this.#elector?.stop();
    await this.#work;
  }

  #begin(signal: AbortSignal): void {
    // Two terms of leadership in one process must not overlap.
    this.#work = this.#work.then(() => this.#lead(signal));
  }
}
