import { HealthServer, type HealthServerOptions } from "../runtime/health-server.ts";
import type { Lifecycle } from "../runtime/lifecycle.ts";
import type { Metrics } from "./metrics.ts";

export interface HealthAddresses {
  readonly healthProbeBindAddress: HealthServerOptions["healthAddress"];
  readonly metricsBindAddress: HealthServerOptions["metricsAddress"];
}

/** `/healthz`, `/readyz` and `/metrics` of a process, at the addresses of its options; to be started with its lifecycle. */
export function processHealth(addresses: HealthAddresses, lifecycle: Lifecycle, metrics: Metrics): HealthServer {
  return new HealthServer({
    healthAddress: addresses.healthProbeBindAddress,
    metricsAddress: addresses.metricsBindAddress,
    readiness: () => lifecycle.readiness(),
    liveness: () => lifecycle.liveness(),
    metrics: () => metrics.render(),
  });
}
