import type { ApiClient } from "../../kube/client/api-client.ts";
import type { Informer } from "../../kube/informer/informer.ts";
import type { PodProtector } from "../../schema/podprotector.ts";
import type { ReleaseRegister } from "../register/release-register.ts";

/** What the copies of a cell need of a core cluster (design 7). */
export interface BackupCore {
  readonly name: string;
  readonly api: Pick<ApiClient, "create" | "patch" | "putPodProtectorStatus" | "getPodProtector">;
  readonly protectors: Pick<Informer<PodProtector>, "position"> & { whenSynced(signal: AbortSignal): Promise<void> };
  readonly releases: Pick<ReleaseRegister, "has" | "inForce" | "start" | "stop" | "whenKnown" | "segments">;
}
