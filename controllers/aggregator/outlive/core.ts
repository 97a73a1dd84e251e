import type { ApiClient } from "../../../shared/kube/api.ts";
import type { ReleaseRegister } from "../../../shared/kube/release-register.ts";
import type { Source } from "../../../shared/kube/source.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";

/** What the copies of a cell need of a core cluster (design 7). */
export interface OutliveCore {
  readonly name: string;
  readonly api: Pick<ApiClient, "create" | "patch" | "putPodProtectorStatus" | "getPodProtector">;
  readonly protectors: Pick<Source<PodProtector>, "position"> & { whenSynced(signal: AbortSignal): Promise<void> };
  readonly releases: Pick<ReleaseRegister, "has" | "inForce" | "start" | "stop" | "whenKnown" | "segments">;
}
