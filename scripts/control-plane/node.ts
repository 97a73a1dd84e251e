export interface NodeSpec {
  readonly name?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  /** By default 1000 CPUs, 1 TiB and 10,000 pods. */
  readonly allocatable?: Readonly<Record<string, string>>;
}

/** A node for KWOK to keep: what a kubelet registers itself with. */
export function nodeManifest(name: string, options: NodeSpec): unknown {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name,
      labels: {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        ...options.labels,
      },
      annotations: options.annotations ?? {},
    },
    ...(options.allocatable === undefined
      ? {}
      : { status: { allocatable: options.allocatable, capacity: options.allocatable } }),
  };
}
