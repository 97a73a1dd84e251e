import { expect, test } from "vitest";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { ObjectStore } from "../../shared/kube/informer/object-store.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { pod, protector } from "../../test/support/webhook/fixtures.ts";
import { ProtectorStore } from "../../test/support/webhook/protector-store.ts";
import { ask } from "../../test/support/webhook/writer-harness.ts";
import { ProtectorCache } from "./protector-cache.ts";

test("a writer is forgotten with its protector", async () => {
  const time = new VirtualTime();
  const store = new ProtectorStore({ ports: time, object: protector(5) });
  const source = new ObjectStore<ProtectorVersion>({
    uidOf: ({ uid }) => uid,
    versionOf: ({ version }) => version,
    onHandlerError: (error) => {
      throw error;
    },
  });
  const core = new ProtectorCache({
    name: "core",
    client: store.client(),
    ports: time,
    tag: "self",
    onEvent: () => undefined,
    source: {
      get: (k) => source.get(k),
      values: () => source.values(),
      get size() {
        return source.size;
      },
      position: "1",
      synced: true,
      lastContactMs: 0,
      confirmedSentMs: 0,
      requestEvidence: () => undefined,
      learned: () => undefined,
      subscribe: (h) => source.subscribe(h),
    },
  });
  const show = () => source.upsert("default/web", new ProtectorVersion(store.object, 0), "1");
  show();
  const writer = core.match(pod("web-0"))[0]?.writer;
  if (writer === undefined) throw new Error();
  const asked = ask(time, writer, pod("web-0"));
  const object = store.object;
  store.remove();
  source.remove("default/web", "uid-of-web", "2");
  await time.advance(10_000);
  expect(asked.decision).toBeDefined();
  expect(writer.idle).toBe(true);
  source.upsert("default/web", new ProtectorVersion(object, 0), "3");
  expect(core.match(pod("web-0"))[0]?.writer).not.toBe(writer);
});
