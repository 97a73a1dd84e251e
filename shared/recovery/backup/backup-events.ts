/** What happens around lost protectors, for metrics and logs. */

interface Named {
  readonly core: string;
  /** `namespace/name`. */
  readonly protector: string;
  readonly uid: string;
}

export type BackupEvent =
  | ({ readonly kind: "vanished" | "recreated" } & Named)
  | ({ readonly kind: "recreateFailed"; readonly message: string } & Named)
  | { readonly kind: "copied"; readonly chunks: number; readonly protectors: number }
  | { readonly kind: "copyFailed"; readonly message: string }
  /** Not all protectors have a copy: there is no room for more. */
  | { readonly kind: "noRoom"; readonly uid: string }
  | { readonly kind: "acknowledged"; readonly core: string; readonly version: string }
  | { readonly kind: "acknowledgeFailed"; readonly core: string; readonly message: string }
  /** The core is older than this cell saw it before. */
  | { readonly kind: "coreWentBack"; readonly core: string; readonly from: string; readonly to: string };
