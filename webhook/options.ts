import { coreOptions, observeOptions } from "../shared/runtime/options/common-options.ts";
import {
  boolean,
  duration,
  hosts,
  list,
  matching,
  namedPaths,
  option,
  optionalOption,
  port,
  requiredOption,
  text,
} from "../shared/runtime/options/option-types.ts";
import { defineOptions, type OptionValues } from "../shared/runtime/options/options.ts";
import { version } from "../shared/runtime/version.ts";
import { SINGLE_ATTEMPT_RETRY_MS } from "./respond/single-attempt.ts";

export const webhookOptions = defineOptions({
  name: "podseidon-webhook",
  version,
  summary: "Decides deletions and evictions of pods, and denies those that would break a PodProtector.",
  options: {
    ...coreOptions,
    cell: requiredOption(
      namedPaths("ID=KUBECONFIG", true),
      [],
      "A cell whose admission requests are decided, at PREFIX/ID, with the kubeconfig for " +
        "live reads of pods; an empty path is the cluster of this process. " +
        "Without a kubeconfig the cell's evictions get an HTTP error.",
    ),
    bindAddress: option(text("ADDRESS"), "", "The address to listen on; empty is every address."),
    securePort: option(port(), 8443, "The port for admission requests, over TLS."),
    tlsCertFile: requiredOption(text("FILE"), "", "The serving certificate, PEM; read again when it changes."),
    tlsPrivateKeyFile: requiredOption(text("FILE"), "", "The private key of the serving certificate, PEM."),
    clientCaFile: option(
      text("FILE"),
      "",
      "Accept only callers with a certificate of these authorities (PEM); " +
        "empty accepts every caller. Read again when it changes.",
    ),
    clientName: optionalOption(
      list("NAME"),
      "Accept only client certificates with this common name or DNS name, beside --client-ca-file; " +
        "without it, every certificate of these authorities.",
    ),
    requireCallerToken: option(
      boolean(),
      false,
      "Reject calls without an identity token of the cell's kube-apiserver (KEP-6060). " +
        "A token is always verified.",
    ),
    secretPathFile: option(
      text("FILE"),
      "",
      "Published CAs (PEM): accept only paths with the segment of the aggregator's --secret-path.",
    ),
    pathPrefix: option(
      matching(/^(\/[A-Za-z0-9._~-]+)*$/, "empty, or a path such as /webhook", "PATH"),
      "/webhook",
      "Admission requests are decided at PATH/CELL; evictions are bound to their pods at PATH/CELL/mutate.",
    ),
    settlePeriod: option(
      duration({ minMs: 100 }),
      75_000,
      "How long after its admission a deletion can still be committed; the same as the aggregators'.",
    ),
    dryRun: option(boolean(), false, "Deny nothing: what would be denied is allowed with a warning."),
    requireBoundEvictions: option(
      boolean(),
      false,
      "Deny evictions of protected pods that are not bound to a pod's UID, as PATH/CELL/mutate binds them.",
    ),
    probeCaFile: option(
      text("FILE"),
      "",
      "PEM certificates for probes whose protector names none; empty is the system's.",
    ),
    probeAllow: option(
      hosts(),
      ["*.svc", "*.svc.cluster.local"],
      "A host that probes may ask: a name, *. and the end of a name, an address or a network (10.0.0.0/8).",
    ),
    probeClientCertFile: option(text("FILE"), "", "The certificate for the servers of probes, PEM."),
    probeClientKeyFile: option(text("FILE"), "", "The private key of that certificate, PEM."),
    markPendingDisruptions: option(
      boolean(),
      false,
      "Annotate a pod with xpdb.form3.tech/has-pending-disruption while a pre-activity holds it.",
    ),
    reviewNodes: option(
      boolean(),
      true,
      "Deny the deletion of a node whose pods may not go, where the cell asks about nodes.",
    ),
    reviewStatus: option(
      boolean(),
      true,
      "Treat a status write that ends a Ready pod, or takes it out of service, as a disruption.",
    ),
    nodeGroups: option(
      list("GROUP"),
      ["system:nodes"],
      "Groups whose status writes are facts: the kubelets'. The webhook configuration names them, too.",
    ),
    voluntaryGates: option(
      list("CONDITION"),
      ["InPlaceUpdateReady", "KruisePodReady"],
      "Readiness gates by which a controller takes a pod out of service before it changes it " +
        "in place, or runs a lifecycle hook. The webhook configuration names them, too.",
    ),
    bypassNeedsPermission: option(
      boolean(),
      false,
      "Follow the force-delete annotation only for users who may bypass " +
        "podprotectors.podseidon.kubewharf.io in the pod's namespace of their cell.",
    ),
    singleAttemptUser: option(
      list("USERNAME"),
      [],
      "A user whose denied deletions nobody repeats, beside kube-system's node-controller (taint eviction). " +
        "Its client is told to repeat them.",
    ),
    singleAttemptRetryAfter: option(
      duration({ maxMs: 600_000 }),
      SINGLE_ATTEMPT_RETRY_MS,
      "When such a client repeats a denied deletion, in whole seconds; client-go does so ten times. 0 tells none.",
    ),
    protectorSelector: option(
      text("SELECTOR"),
      "",
      "Decide by protectors with such labels alone; empty is all. The others protect nothing here: " +
        "see docs/migration-from-upstream.md#a-selector-of-protectors.",
    ),
    metricsByNamespace: option(boolean(), false, "Count admission requests by namespace, too."),
    metricsByUser: option(
      boolean(),
      false,
      "Count admission requests by user, too. kube-apiserver does not tell a webhook the user agent.",
    ),
    kubernetesEvents: option(
      boolean(),
      true,
      "Report denied and forced disruptions by Events, at the pod and at the protector.",
    ),
    acceptedEvents: option(boolean(), false, "Report admitted ones, too: Events Accepted, as x-pdb has them."),
    namespace: option(
      text("NAMESPACE"),
      "podseidon-system",
      "The namespace of podseidon's pods, which are exempt, of release registers and of backups.",
    ),
    outlive: option(
      boolean(),
      true,
      "Keep lost protectors in force, by the release registers of cores and the backups in cells.",
    ),
    shutdownDelay: option(
      duration(),
      5_000,
      "How long requests are accepted after SIGTERM, until the Service has removed this replica.",
    ),
    ...observeOptions,
  },
  check: ({ clientName, clientCaFile = "", probeClientCertFile, probeClientKeyFile }) => {
    if (!probeClientCertFile !== !probeClientKeyFile)
      return ["--probe-client-cert-file, --probe-client-key-file: give both"];
    // Not every certificate: the flag is there to restrict them.
    if (clientName?.length === 0) return ["--client-name: it has no name"];
    if (clientName === undefined || clientCaFile !== "") return [];
    return ["--client-name: names of client certificates need --client-ca-file, the authorities that signed them"];
  },
});

export type WebhookFlags = OptionValues<(typeof webhookOptions)["options"]>;
