import { coreOptions, observeOptions } from "../shared/runtime/options/common-options.ts";
import {
  boolean,
  duration,
  matching,
  namedPaths,
  option,
  port,
  requiredOption,
  text,
} from "../shared/runtime/options/option-types.ts";
import { defineOptions, type OptionValues } from "../shared/runtime/options/options.ts";
import { version } from "../shared/runtime/version.ts";

/** The webhook's options (design 11). */
export const webhookOptions = defineOptions({
  name: "podseidon-webhook",
  version,
  summary: "Reviews deletions and evictions of pods and refuses those that would break a PodProtector.",
  options: {
    ...coreOptions,
    cell: requiredOption(
      namedPaths("ID=KUBECONFIG", true),
      [],
      "A cell whose reviews are answered, at PREFIX/ID, with the kubeconfig through which the pods of evictions are read live; an empty path is the cluster that the process runs in. Without a kubeconfig the cell's evictions are answered with an HTTP error.",
    ),
    bindAddress: option(text("ADDRESS"), "", "The address on which reviews are served; empty is every address."),
    securePort: option(port(), 8443, "The port on which reviews are served, over TLS."),
    tlsCertFile: requiredOption(text("FILE"), "", "The serving certificate, PEM; read again when it changes."),
    tlsPrivateKeyFile: requiredOption(text("FILE"), "", "The private key of the serving certificate, PEM."),
    clientCaFile: option(
      text("FILE"),
      "",
      "Only callers that show a certificate of these authorities (PEM) are answered; empty is everybody. Read again when it changes.",
    ),
    pathPrefix: option(
      matching(/^(\/[A-Za-z0-9._~-]+)+$/, "a path such as /webhook", "PATH"),
      "/webhook",
      "Reviews are answered at PATH/CELL; evictions are bound to their pod's UID at PATH/CELL/mutate.",
    ),
    settlePeriod: option(
      duration({ minMs: 100 }),
      75_000,
      "How long after its admission a deletion can still be committed by an apiserver; the same as the aggregators'.",
    ),
    dryRun: option(boolean(), false, "Refuse nothing: what would be refused is let go with a warning."),
    requireBoundEvictions: option(
      boolean(),
      false,
      "Refuse evictions that are not bound to a pod's UID, as PATH/CELL/mutate binds them.",
    ),
    probeCaFile: option(
      text("FILE"),
      "",
      "PEM certificates that a probe's certificate is checked against where the protector names none; empty is the system's.",
    ),
    markPendingDisruptions: option(
      boolean(),
      false,
      "Annotate a pod that is held back by a pre-activity with xpdb.form3.tech/has-pending-disruption when somebody wants it gone.",
    ),
    bypassNeedsPermission: option(
      boolean(),
      false,
      "Follow the force-delete annotation only for users who may bypass podprotectors.podseidon.kubewharf.io in the pod's namespace of their cell (SubjectAccessReview).",
    ),
    kubernetesEvents: option(
      boolean(),
      true,
      "Tell of refused and forced disruptions by Kubernetes Events, rate limited: at the pod in its cell, at the protector in its core.",
    ),
    namespace: option(
      text("NAMESPACE"),
      "podseidon-system",
      "The namespace of the project's own pods, which are let go without asking a core cluster; the register of released protectors and the copies of protectors are in it, too.",
    ),
    outlive: option(
      boolean(),
      true,
      "Protectors outlive their own loss: follow the register of releases in each core, read the copies in each cell at the start.",
    ),
    shutdownDelay: option(
      duration(),
      5_000,
      "How long reviews are still accepted after SIGTERM, while the Service forgets this replica.",
    ),
    ...observeOptions,
  },
});

export type WebhookFlags = OptionValues<(typeof webhookOptions)["options"]>;
