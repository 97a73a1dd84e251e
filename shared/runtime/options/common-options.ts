/** Options that several components share; spread them into `defineOptions({ options: { ...observeOptions } })`. */
import { bindAddress, choice, namedPaths, option, requiredOption, text } from "./option-types.ts";

const LOG_LEVELS = ["trace", "debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const EVERYWHERE = { host: undefined };

export const observeOptions = {
  healthProbeBindAddress: option(
    bindAddress(),
    { ...EVERYWHERE, port: 8081 },
    "Where /healthz and /readyz are served, in plain HTTP; 0 for nowhere.",
  ),
  metricsBindAddress: option(
    bindAddress(),
    { ...EVERYWHERE, port: 8080 },
    "Where /metrics is served, in plain HTTP; 0 for nowhere.",
  ),
  metricsAuth: option(
    text("KUBECONFIG"),
    "",
    "Serve /metrics by HTTPS to those whom this cluster, or in-cluster, lets get it.",
  ),
  logLevel: option(choice(LOG_LEVELS), "info", "The least severe log lines that are written."),
};

/** `--core`: the clusters that host the PodProtectors. Each `path` is a kubeconfig file; empty for in-cluster. */
export const coreOptions = {
  core: requiredOption(
    namedPaths("NAME=KUBECONFIG"),
    [],
    "A core cluster, which hosts PodProtectors, and its kubeconfig; " +
      "an empty path is the cluster of the process itself.",
  ),
};
