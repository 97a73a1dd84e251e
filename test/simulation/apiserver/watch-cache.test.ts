import { expect, it } from "vitest";
import { VirtualTime } from "../../support/runtime/virtual-ports.ts";
import { Etcd } from "./etcd.ts";
import { WatchCache } from "./watch-cache.ts";

it("does not serve a list at a version that a restored history never had", async () => {
  const time = new VirtualTime();
  const etcd = new Etcd();
  const cache = new WatchCache(etcd, time.timers, "pods/", () => 1);
  const backup = etcd.backup();
  etcd.put("pods/default/lost", {});
  const lost = etcd.revision;
  etcd.restore(backup, false);
  cache.reset();
  etcd.put("pods/default/new", {});
  await time.advance(10);
  expect(cache.oldest(lost, "pods/")).toMatchObject({ revision: etcd.revision, items: [{ key: "pods/default/new" }] });
  expect(cache.oldest(backup.revision, "pods/")).toEqual({ revision: backup.revision, items: [] });
});
