/** Whether bookmarks carry the versions of lists, so that a cell needs no trigger. */
import { expect, test } from "vitest";
import { raw } from "../../test/support/kube/reflector-harness.ts";
import { page, ScriptedStream, ScriptedTransport } from "../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { probeBookmarks } from "./bookmarks.ts";

/** The results of ten minutes. There is a list of each of these versions, the third one after a second, the last. */
async function probe(versions: readonly string[], show: (stream: ScriptedStream) => void) {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const stream = new ScriptedStream();
  transport.watches.push(stream);
  // The dummy pod was patched at version 10, and no list since shows another version of it.
  for (const version of versions) transport.confirmations.push(page(version, [raw("dummy", "10")]));
  const more = 100;
  transport.confirmations.push(
    ...Array.from({ length: more }, () => page(versions.at(-1) ?? "", [raw("dummy", "10")])),
  );
  const results: (boolean | undefined)[] = [];
  const stop = new AbortController();
  const onResult = (sends: boolean | undefined): void => void results.push(sends);
  const done = probeBookmarks({ transport, ports: time, namespace: "ns", podName: "dummy", onResult }, stop.signal);
  await time.advance(1_500);
  show(stream);
  await time.advance(5_000);
  stream.end();
  await time.settle();
  // Nothing is listed any more until the next look.
  const { length } = transport.confirmations;
  await time.advance(9_000);
  expect(transport.confirmations).toHaveLength(length);
  await time.advance(590_000);
  stop.abort();
  await done;
  return results;
}

const bookmark = (version: string) => (stream: ScriptedStream) => stream.event("BOOKMARK", raw("", version));

test.each<[string, readonly string[], (stream: ScriptedStream) => void, boolean]>([
  ["the version of a list", ["10", "11", "12"], bookmark("11"), true],
  ["an older version than lists had", ["11", "12", "13"], bookmark("9"), false],
  ["no version, where there is no bookmark", ["10", "11", "12"], () => {}, false],
])("a bookmark has %s", async (_, versions, show, expected) => {
  expect(await probe(versions, show)).toEqual([expected]);
});

test.each<[string, readonly string[], (stream: ScriptedStream) => void]>([
  ["a list shows", ["10", "10", "10"], bookmark("10")],
  ["the stream shows", ["10", "12", "12"], (stream) => bookmark("12")(stream.event("MODIFIED", raw("dummy", "12")))],
  ["only the newest list is newer than", ["10", "10", "12"], bookmark("11")],
])(
  "a bookmark of a version of the dummy pod that %s says nothing, and it is looked again soon",
  async (_, ...given) => {
    const [first, ...later] = await probe(...given);
    expect(first).toBeUndefined();
    // Nobody answers any more.
    expect(later.length).toBeGreaterThan(10);
    expect(new Set(later)).toEqual(new Set([undefined]));
  },
);
