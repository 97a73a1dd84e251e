/** A cluster with two kube-apiservers over one etcd, of which the second can lag, behind a balancer. */
import type { AnotherApiserver, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { Balancer, type Endpoint } from "../../../scripts/environment/balancer.ts";
import { LaggingEtcd } from "./lagging-etcd.ts";

export class TwoApiservers implements AsyncDisposable {
  readonly #cluster: Cluster;
  readonly #etcd: LaggingEtcd;
  readonly #balancer: Balancer;
  readonly second: AnotherApiserver;

  /** Connections through the balancer go to the second one until {@link balance}. */
  static async start(cluster: Cluster): Promise<TwoApiservers> {
    const etcd = await LaggingEtcd.start(cluster);
    const second = await cluster.addApiserver({ "etcd-servers": etcd.url });
    return new TwoApiservers(cluster, second, etcd, await Balancer.listen([endpointOf(second)]));
  }

  private constructor(cluster: Cluster, second: AnotherApiserver, etcd: LaggingEtcd, balancer: Balancer) {
    this.#cluster = cluster;
    this.second = second;
    this.#etcd = etcd;
    this.#balancer = balancer;
  }

  /** New connections through the balancer go to these; those that are open stay. */
  balance(...to: readonly ("first" | "second")[]): void {
    this.#balancer.endpoints = to.map((one) => endpointOf(one === "first" ? this.#cluster : this.second));
  }

  /** The watch caches of the second one stay as they are; it reads and writes, and is ready. */
  lag(on: boolean): void {
    this.#etcd.hold(on);
  }

  /** A kubeconfig file of the administrator, to the second apiserver alone or to the balancer. */
  async kubeconfig(to: "second" | "balancer"): Promise<string> {
    const server = to === "second" ? this.second.url : `https://127.0.0.1:${this.#balancer.port}`;
    return await this.#cluster.kubeconfigFor({ token: this.#cluster.identity.adminToken }, { server });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#balancer.close();
    await this.#etcd[Symbol.asyncDispose]();
  }
}

function endpointOf({ url }: { readonly url: string }): Endpoint {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}
