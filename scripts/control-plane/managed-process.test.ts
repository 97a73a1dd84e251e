import { existsSync, mkdtempDisposableSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ManagedProcess } from "./managed-process.ts";

/** What a kube-apiserver wrote before it ended, on a machine that stood still while it started. */
const GAVE_UP =
  'F1129 12:47:44.108736 4981 hooks.go:203] PostStartHook "scheduling/bootstrap-system-priority-classes" failed: ' +
  'unable to add default system priority classes: priorityclasses.scheduling.k8s.io "system-node-critical" is ' +
  "forbidden: not yet ready to handle request";

/** A process that ends with `lastWords` at its first `failures` starts, and serves then. */
function failing(
  directory: string,
  failures: number,
  lastWords: string,
  before = ":",
): ManagedProcess & AsyncDisposable {
  writeFileSync(join(directory, "last-words"), `${lastWords}\n`);
  const script = `
    echo start >> starts
    if [ "$(wc -l < starts)" -le ${failures} ]; then ${before}; cat last-words; exit 255; fi
    touch ready
    exec sleep 60`;
  const options = {
    name: "kube-apiserver",
    logFile: join(directory, "log"),
    workingDirectory: directory,
    launch: () => ({ binary: "/bin/sh", args: ["-c", script] }),
    isReady: () => Promise.resolve(existsSync(join(directory, "ready"))),
    startTimeoutMs: 60_000,
    onUnexpectedEnd: () => {},
  };
  const started = new ManagedProcess(options);
  return Object.assign(started, { [Symbol.asyncDispose]: () => started.kill() });
}

test.each([
  ["an apiserver whose start hook is refused by its own caches", GAVE_UP],
  [
    "an apiserver whose first roles take too long",
    'F1130 12:47:44.1 1 hooks.go:203] PostStartHook "rbac/bootstrap-roles" failed: unable to initialize roles: ' +
      "timed out waiting for the condition",
  ],
  [
    "a controller manager whose apiserver does not answer in time",
    'E1130 12:47:44.1 1 controllermanager.go:263] "Error building controller context" ' +
      'err="failed to wait for apiserver being healthy: timed out waiting for the condition"',
  ],
])("%s is started again", async (_, lastWords) => {
  using directory = mkdtempDisposableSync(join(tmpdir(), "podseidon-process-"));
  await using apiserver = failing(directory.path, 2, lastWords);
  await apiserver.start();
  expect(apiserver.running).toBe(true);
});

test("an apiserver that gives up at each start is an error with the end of its log", async () => {
  using directory = mkdtempDisposableSync(join(tmpdir(), "podseidon-process-"));
  await using apiserver = failing(directory.path, 10, GAVE_UP);
  await expect(apiserver.start()).rejects.toThrow(/ended before it was ready.*not yet ready to handle request/s);
  expect(apiserver.running).toBe(false);
});

test("a controller manager that was healthy before it gave up is revived; one that runs is left alone", async () => {
  using directory = mkdtempDisposableSync(join(tmpdir(), "podseidon-process-"));
  const file = (name: string): void => writeFileSync(join(directory.path, name), "");
  const lastWords = "failed to wait for apiserver being healthy: timed out waiting for the condition";
  file("ready");
  await using manager = failing(directory.path, 1, lastWords, "while [ ! -e go ]; do sleep 0.02; done");
  await manager.start();
  const { pid } = manager;
  await manager.revive();
  expect(manager.pid).toBe(pid);
  file("go");
  await expect.poll(() => manager.running).toBe(false);
  await manager.revive();
  expect(manager.running).toBe(true);
});

test("a process that ends for another reason is not started again", async () => {
  using directory = mkdtempDisposableSync(join(tmpdir(), "podseidon-process-"));
  await using apiserver = failing(directory.path, 1, "unknown flag: --ready");
  await expect(apiserver.start()).rejects.toThrow(/unknown flag/);
  expect(apiserver.running).toBe(false);
});
