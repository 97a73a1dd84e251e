/**
 * `kubectl podseidon dashboard`, as it ships, on a real core: what its page gets, and the page itself in a headless
 * Chromium, where there is one.
 */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { get, type IncomingMessage } from "node:http";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { root } from "../../../scripts/root.ts";
import { Browser, chromium } from "./browser.ts";
import { nameOf, namespaceOf, RunningDashboard, refuse, startCore, writeCounts, writeMany } from "./dashboard-core.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const FEW = 5;
/** For what hangs, not for what is slow. */
const HANGS_MS = 120_000;
const MANY = 5000;
const CHANGED = 1000;
const LONG_TASKS = `window.longTasks = []; new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) window.longTasks.push(duration);
}).observe({ type: "longtask" })`;
const AXE = readFileSync(join(root, "node_modules/axe-core/axe.min.js"), "utf8");
/** What axe finds, contrast included, in a word for each kind and place. */
const SERIOUS = `axe.run({ resultTypes: ["violations"] }).then(({ violations }) => violations
  .filter(({ impact }) => impact === "serious" || impact === "critical")
  .flatMap(({ id, nodes }) => nodes.map((node) => [id, node.html.slice(0, 200), node.failureSummary].join(": "))))`;

let core: Cluster;
let dashboard: RunningDashboard;

beforeAll(async () => {
  core = await startCore();
  await writeMany(core, FEW);
  dashboard = await RunningDashboard.start(core.kubeconfig);
});

afterAll(async () => {
  await dashboard?.stop();
  await core?.stop();
});

/** The stream of a page; `until` reads until what has come since the last `forget` has the text. */
async function updates(url: string) {
  const asked = get(`${url}updates`);
  const [response]: IncomingMessage[] = await once(asked, "response");
  if (response === undefined) throw new Error("no response");
  const chunks = response.setEncoding("utf8")[Symbol.asyncIterator]();
  let text = "";
  return {
    until: async (wanted: RegExp): Promise<string> => {
      const hangs = setTimeout(() => response.destroy(new Error(`never ${wanted}: ${text.slice(-2000)}`)), HANGS_MS);
      while (!wanted.test(text)) {
        const { value, done } = await chunks.next();
        if (done === true) throw new Error(`the stream ended without ${wanted}: ${text.slice(-2000)}`);
        text += value;
      }
      clearTimeout(hangs);
      return text;
    },
    forget: () => {
      text = "";
    },
    close: () => response.destroy(),
  };
}

const watching = (what: string, state: string): RegExp => new RegExp(`"what":"${what}","state":"${state}"`);

describe("what a page gets", () => {
  test("is each protector, then each change, and refusals as they happen", async () => {
    const page = await updates(dashboard.url);
    await page.until(new RegExp(`"name":"${nameOf(FEW - 1)}"`));
    await page.until(watching("Events", "live"));
    page.forget();
    await writeCounts(core, "shop", nameOf(0), { required: 4, available: 2, total: 5 });
    expect(await page.until(/"state":"below minimum"/)).not.toContain(nameOf(1));
    await refuse(core, "shop", nameOf(0), "pod shop/app-0 may not be deleted now");
    await page.until(/"message":"pod shop\/app-0 may not be deleted now"/);
    page.close();
  });

  test("says so while the core gives no answer, and when it does again", async () => {
    const page = await updates(dashboard.url);
    await page.until(watching("protectors", "live"));
    page.forget();
    const { "kube-apiserver": apiserver } = core.processes;
    await apiserver.kill();
    expect(await page.until(watching("protectors", "stale"))).toMatch(/"why":"[^"]+"/);
    page.forget();
    await apiserver.start();
    await page.until(watching("protectors", "live"));
    page.close();
  });
});

test("a user who may read protectors alone is told that Events are forbidden", async () => {
  const [group, version] = ["rbac.authorization.k8s.io", "v1"];
  const rules = [
    { apiGroups: ["podseidon.kubewharf.io"], resources: ["podprotectors"], verbs: ["get", "list", "watch"] },
  ];
  const role = { apiGroup: group, kind: "ClusterRole", name: "reader" };
  await core.apply([
    { apiVersion: `${group}/${version}`, kind: "ClusterRole", metadata: { name: "reader" }, rules },
    {
      ...{ apiVersion: `${group}/${version}`, kind: "ClusterRoleBinding", metadata: { name: "reader" } },
      ...{ roleRef: role, subjects: [{ kind: "User", name: "eve", apiGroup: group }] },
    },
  ]);
  const kubeconfig = await core.kubeconfigFor({ user: "eve" }, { path: join(core.directory, "eve") });
  await core.waitFor("the role", async () => {
    const args = ["auth", "can-i", "watch", "podprotectors.podseidon.kubewharf.io", "-A"];
    return (await core.kubectl(args, { kubeconfig })).code === 0;
  });
  const hers = await RunningDashboard.start(kubeconfig);
  const page = await updates(hers.url);
  await page.until(new RegExp(`"name":"${nameOf(0)}"`));
  await page.until(/"what":"Events","state":"forbidden".*"why":"[^"]*forbidden/);
  page.close();
  expect(await hers.stop()).toBe("SIGINT");
});

describe.runIf(chromium !== undefined)("the page in a browser", () => {
  let browser: Browser;

  beforeAll(async () => {
    browser = await Browser.start();
    await browser.size(1440, 1100);
    await browser.open(dashboard.url);
    await browser.until(`document.querySelectorAll("#protectors tbody tr").length === ${FEW}`);
  });
  afterAll(() => browser?.stop());

  test("has the worst protector first, and reads it with the keyboard alone", async () => {
    await writeCounts(core, namespaceOf(2), nameOf(2), { required: 9, available: 1, total: 9 });
    await browser.until(`document.querySelector("#protectors tbody tr").textContent.includes("${nameOf(2)}")`);
    await browser.press("/");
    await browser.until(`document.activeElement.id === "search"`);
    for (const letter of "0002") await browser.press(letter);
    await browser.until(`document.querySelectorAll("#protectors tbody tr").length === 1`);
    await browser.evaluate(`document.querySelector("#protectors tbody a").focus()`);
    await browser.press("Enter");
    await browser.until(`document.querySelector("dialog[open]")?.textContent.includes("Fewer pods are available")`);
    await browser.press("Escape");
    await browser.until(`document.querySelector("dialog[open]") === null && location.hash === ""`);
    expect(await browser.evaluate(`document.activeElement.textContent`)).toBe(nameOf(2));
  });

  test.each(["light", "dark"] as const)("has no serious fault of accessibility, %s", async (scheme) => {
    await browser.colours(scheme);
    await browser.evaluate(AXE);
    expect(await browser.evaluate(SERIOUS)).toEqual([]);
    await browser.evaluate(`document.querySelector("#protectors tbody a").click()`);
    await browser.until(`document.querySelector("dialog[open] canvas") !== null`);
    expect(await browser.evaluate(SERIOUS)).toEqual([]);
    await browser.press("Escape");
    await browser.until(`document.querySelector("dialog[open]") === null`);
  });

  test("shows what a tenant wrote as text", async () => {
    const hostile = `<img src=x onerror="document.title='owned'"><script>document.title="owned"</script>`;
    await refuse(core, namespaceOf(1), nameOf(1), hostile);
    await browser.until(`document.querySelector(".feed")?.textContent.includes("onerror")`);
    expect(await browser.evaluate(`[document.title, document.images.length]`)).toEqual(["podseidon", 0]);
  });

  test("asks nobody but the plugin, and breaks none of its own rules", () => {
    expect(browser.requested.filter((url) => !url.startsWith(dashboard.url))).toEqual([]);
    expect(browser.complaints).toEqual([]);
  });
});

/** Figures of docs/dashboard.md: what is printed. Only heap and DOM are bounded here, because other work is beside. */
describe.runIf(FULL && chromium !== undefined)(`with ${MANY} protectors`, () => {
  test("the page stays small while many of them change", async () => {
    await writeMany(core, MANY);
    const browser = await Browser.start();
    try {
      await browser.open(dashboard.url);
      await browser.until(`document.querySelector(".live")?.textContent.includes("5,000 protectors")`);
      await browser.evaluate(LONG_TASKS);
      await writeMany(core, CHANGED, 1);
      await browser.until(`document.querySelector(".tile.trouble b").textContent !== "0"`);
      const { JSHeapUsedSize = 0, Nodes = 0 } = await browser.measure();
      const longest = await browser.evaluate("Math.max(0, ...window.longTasks)");
      const [, rss] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${dashboard.process.pid}/status`, "utf8")) ?? [];
      const mb = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;
      console.log(
        `page: ${mb(JSHeapUsedSize)} of heap, ${Nodes} DOM nodes, longest task ${longest} ms; ` +
          `plugin: ${mb(Number(rss) * 1024)} resident`,
      );
      expect(JSHeapUsedSize).toBeLessThan(50e6);
      expect(Nodes).toBeLessThan(6000);
    } finally {
      await browser.stop();
    }
  });
});
