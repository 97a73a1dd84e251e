/**
 * Every component of an installation over a hostile network, and beside servers that fail. After the end of each fault
 * every component works again without a restart, what it published was true, and it did not send too many requests. By
 * default each fault affects all connections at once; `PODSEIDON_TEST_SIZE=full` adds each network fault on each
 * connection alone.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, test } from "vitest";
import type { Cluster } from "../../scripts/control-plane/cluster.ts";
import { root } from "../../scripts/root.ts";
import { eachAtMost } from "../../shared/runtime/each-at-most.ts";
import { printTable } from "./components/component-evidence.ts";
import { type ComponentFault, ComponentHarness } from "./components/component-harness.ts";
import { type ComponentLink, ComponentLinks } from "./components/component-links.ts";
import { holdSeat, REFUSAL, refuseAccounts } from "./flow-control.ts";
import type { NetworkConditions, RawResponse } from "./proxy/proxy.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
/** The time in which requests are counted. */
const OUTAGE_MS = 10_000;
/** Longer than any stream waits for data. */
const HALF_OPEN_MS = 17_000;
const FROZEN_MS = FULL ? 60_000 : OUTAGE_MS;
const SLOW = { bytesPerMs: 20, delayMs: 100 };
const LATE = { delayMs: 4_000 }; // On each of the two ways.
const LATE_MS = 24_000;
const RESET_EVERY_MS = 3_000;
/** More than a server writes while it starts and its clients come back. */
const LOST_WRITES = 600;
/**
 * More than a server writes while it starts, and few enough to be made before the generator loses its lease and lists
 * everything.
 */
const FEW_WRITES = 100;
const CRD = "podprotectors.podseidon.kubewharf.io";
const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";
const CRD_FILE = join(root, "crds/podseidon.kubewharf.io_podprotectors.yaml");

let harness: ComponentHarness;
let links: ComponentLinks;

async function write(cluster: Cluster, times: number): Promise<void> {
  await eachAtMost(
    10,
    Array.from({ length: times }, (_, index) => index),
    async () => {
      await cluster.admin.call("POST", "/api/v1/namespaces/default/configmaps", {
        metadata: { generateName: "lost-" },
      });
    },
  );
}

beforeAll(async () => {
  harness = await ComponentHarness.start((directory) => {
    links = new ComponentLinks(directory);
    return links;
  });
});

afterAll(async () => {
  printTable();
  await harness?.[Symbol.asyncDispose]();
});

type Network = (links: readonly ComponentLink[]) => Omit<ComponentFault, "links">;

const nothing = async (): Promise<void> => {};
const each = (links: readonly ComponentLink[], act: (link: ComponentLink) => unknown): Promise<unknown> =>
  Promise.all(links.map(act));
/** Links with a stream of events. */
const streams = (links: readonly ComponentLink[]): readonly ComponentLink[] =>
  links.filter(({ name }) => name !== "webhook-1 > cell" && name !== "update-trigger > cell");

function brokenLine(fault: "garbage" | "cutLine" | "cutCharacter"): Network {
  return (links) => ({
    name: fault,
    isOutage: false,
    begin: () => each(streams(links), ({ proxy }) => proxy.breakNextLine(fault)),
    end: nothing,
  });
}

/** Links on which something is written all the time. */
const WRITING = ["webhook-1 > core", "aggregator-cell > core", "update-trigger > cell"];

function lostWrites(what: "request" | "response"): Network {
  return (links) => ({
    name: `lost ${what}`,
    isOutage: false,
    begin: () =>
      each(
        links.filter(({ name }) => WRITING.includes(name)),
        ({ proxy }) => proxy.loseNext(what, ({ method, path }) => method !== "GET" && !path.includes("/leases")),
      ),
    end: nothing,
  });
}

function slowed(name: string, conditions: NetworkConditions, ms: number): Network {
  return (links) => ({
    name,
    isOutage: false,
    begin: async () => {
      await each(links, ({ proxy }) => proxy.setConditions(conditions));
      await each(links, ({ proxy }) => proxy.reset());
      await delay(ms);
    },
    end: () => each(links, ({ proxy }) => proxy.setConditions({})),
  });
}

/** Something in between answers each request. */
function answered(name: string, response: RawResponse): Network {
  return (links) => ({
    name,
    isOutage: true,
    begin: async () => {
      for (const { proxy } of links) proxy.respondNext(Number.POSITIVE_INFINITY, response);
      await each(links, ({ proxy }) => proxy.reset());
      await delay(OUTAGE_MS);
    },
    end: () => each(links, ({ proxy }) => proxy.respondNext(0, response)),
  });
}

const NETWORK: readonly [string, Network][] = [
  [
    "reset",
    (links) => ({
      name: "reset",
      isOutage: false,
      begin: () => each(links, ({ proxy }) => proxy.reset()),
      end: nothing,
    }),
  ],
  [
    "refused connections",
    (links) => ({
      name: "refused",
      isOutage: true,
      begin: async () => {
        await each(links, ({ proxy }) => proxy.refuse(true));
        await delay(OUTAGE_MS);
      },
      end: () => each(links, ({ proxy }) => proxy.refuse(false)),
    }),
  ],
  [
    "a host name without an address",
    (some) => ({
      name: "unknown host",
      isOutage: true,
      begin: async () => {
        links.unknown(some);
        await each(some, ({ proxy }) => proxy.reset());
        await delay(OUTAGE_MS);
      },
      end: async () => links.unknown([]),
    }),
  ],
  [
    "half-open connections",
    (links) => ({
      name: "half-open",
      isOutage: true,
      begin: async () => {
        await each(links, ({ proxy }) => proxy.halfOpen(true));
        await delay(HALF_OPEN_MS);
      },
      end: () => each(links, ({ proxy }) => proxy.halfOpen(false)),
    }),
  ],
  ["a slow network in small pieces", slowed("20 kB/s, 100 ms late", SLOW, 4_000)],
  ["answers that are late by more than any call waits", slowed("8 s late", LATE, LATE_MS)],
  [
    "one connection in three that hangs",
    (links) => ({
      name: "one in three hangs",
      isOutage: false,
      begin: async () => {
        await each(links, ({ proxy }) => proxy.hangOneIn(3));
        for (let times = 0; times < LATE_MS / RESET_EVERY_MS; times++) {
          await each(links, ({ proxy }) => proxy.reset());
          await delay(RESET_EVERY_MS);
        }
      },
      end: () => each(links, ({ proxy }) => proxy.hangOneIn(0)),
    }),
  ],
  ["half of an answer", answered("half an answer", { status: 200, body: '{"kind":"List","items":[{"metadata":{"na' })],
  ["a page of a proxy", answered("502 HTML", { status: 502, body: "<html><body>Bad Gateway</body></html>" })],
  ["a garbage line", brokenLine("garbage")],
  ["a stream cut in the middle of a line", brokenLine("cutLine")],
  ["a stream cut in the middle of a character", brokenLine("cutCharacter")],
  ["writes that are lost on their way", lostWrites("request")],
  ["writes that are made, and their responses lost", lostWrites("response")],
];

describe("the network", () => {
  test.each(NETWORK)("%s, everywhere at once", async (_title, network) => {
    const links = harness.links.all;
    await harness.during({ ...network(links), links });
  });

  const LINKS = [
    "webhook-1 > core",
    "webhook-1 > cell",
    "aggregator-cell > cell",
    "aggregator-cell > core",
    "generator > core",
    "update-trigger > cell",
  ];
  const matrix = NETWORK.flatMap(([title, network]) =>
    LINKS.map((link): [string, string, Network] => [title, link, network]),
  );
  test.runIf(FULL).each(matrix)("%s: %s", async (_title, name, network) => {
    const links = harness.links.all.filter((link) => link.name === name);
    await harness.during({ ...network(links), links });
  });
});

/** Both clusters at once; at full size each alone. */
const PLACES = FULL ? (["core", "cell"] as const) : (["both"] as const);
type Place = "core" | "cell" | "both";

function clusters(place: Place): readonly Cluster[] {
  return place === "both" ? [harness.core, harness.cell] : [place === "core" ? harness.core : harness.cell];
}

function linksTo(place: Place): readonly ComponentLink[] {
  return harness.links.all.filter(({ cluster }) => clusters(place).includes(cluster));
}

interface ServerFault {
  readonly title: string;
  readonly holdMs: number;
  readonly isOutage?: boolean;
  begin(cluster: Cluster): unknown;
  end(cluster: Cluster): unknown;
}

const SERVER: readonly ServerFault[] = [
  {
    title: "apiserver kill -9",
    holdMs: OUTAGE_MS,
    begin: (cluster) => cluster.processes["kube-apiserver"].kill("SIGKILL"),
    end: (cluster) => cluster.processes["kube-apiserver"].start(),
  },
  {
    title: "apiserver SIGSTOP",
    holdMs: FROZEN_MS,
    begin: (cluster) => cluster.processes["kube-apiserver"].freeze(),
    end: (cluster) => cluster.processes["kube-apiserver"].thaw(),
  },
  {
    title: "etcd kill -9",
    holdMs: OUTAGE_MS,
    begin: (cluster) => cluster.processes.etcd.kill("SIGKILL"),
    end: (cluster) => cluster.processes.etcd.start(),
  },
  {
    title: "410 after compaction",
    holdMs: 0,
    isOutage: false,
    begin: (cluster) => cluster.expireVersions(),
    end: nothing,
  },
];

describe("the servers", () => {
  const matrix = SERVER.flatMap((fault) =>
    PLACES.map((place): [string, Place, ServerFault] => [fault.title, place, fault]),
  );
  test.each(matrix)("%s: %s", async (_title, place, fault) => {
    const isOutage = fault.isOutage ?? true;
    await harness.during({
      name: `${fault.title}, ${place}`,
      links: linksTo(place),
      isOutage,
      begin: async () => {
        await Promise.all(clusters(place).map((cluster) => fault.begin(cluster)));
        await delay(fault.holdMs);
      },
      end: () => Promise.all(clusters(place).map((cluster) => fault.end(cluster))),
    });
  });

  test("tokens that are revoked before new ones exist", async () => {
    const links = harness.links.all;
    await harness.during({
      name: "revoked token",
      links,
      isOutage: true,
      prepare: () => each(links, ({ token }) => token.revoke()),
      begin: () => delay(OUTAGE_MS),
      end: () => each(links, ({ token }) => token.issue()),
    });
  });

  test("429 with Retry-After from priority and fairness", async () => {
    const links = harness.links.all;
    const both = clusters("both");
    using held = new DisposableStack();
    await harness.during({
      name: "429, Retry-After",
      links,
      isOutage: true,
      // The server needs a moment to apply the configuration.
      prepare: async () => {
        await Promise.all(both.map((cluster) => cluster.apply(refuseAccounts([{ name: "*", namespace: "default" }]))));
        for (const cluster of both) held.use(await holdSeat(cluster));
        await each(links, ({ token }) => token.whenAnswered(429));
      },
      begin: () => delay(OUTAGE_MS),
      end: () => Promise.all(both.map((cluster) => cluster.admin.call("DELETE", REFUSAL))),
    });
  });

  test("a CRD that disappears from etcd and comes back, with its objects intact", async () => {
    await harness.during({
      name: "CRD disappears",
      links: linksTo("core"),
      isOutage: true,
      // The server needs a moment to notice.
      prepare: async () => {
        await harness.core.etcd.deleteKey(`/registry/apiextensions.k8s.io/customresourcedefinitions/${CRD}`);
        const isGone = async () => (await harness.core.admin.request("GET", PROTECTORS)).status === 404;
        await harness.core.waitFor("its objects to be out of reach", isGone);
      },
      begin: () => delay(OUTAGE_MS),
      end: () => harness.core.apply(readFileSync(CRD_FILE, "utf8")),
    });
  });

  test.each(["core", "cell"] as const)("etcd of the %s restored to an older state", async (place) => {
    const cluster = place === "core" ? harness.core : harness.cell;
    const snapshot = cluster.snapshotEtcd();
    await write(cluster, LOST_WRITES);
    await harness.during({
      name: `etcd restored, ${place}`,
      links: linksTo(place),
      isOutage: false,
      begin: async () => {
        if (place === "cell") harness.cellGoesBack();
        await cluster.restoreEtcd(snapshot);
        if (place === "cell") harness.cellWentBack();
      },
      end: nothing,
    });
  });

  test("etcd of the cell restored, with a new history that passes the aggregator's position at once", async () => {
    const links = harness.links.all.filter(({ name }) => name === "aggregator-cell > cell");
    const snapshot = harness.cell.snapshotEtcd();
    await write(harness.cell, LOST_WRITES);
    await harness.triggerMoves();
    const [version, counter] = [await harness.versionOf(harness.cell), await harness.triggerCounter()];
    await harness.during({
      name: "etcd restored, cell, overtaken",
      links,
      isOutage: true,
      begin: async () => {
        harness.cellGoesBack();
        await each(links, ({ proxy }) => proxy.refuse(true));
        await harness.cell.restoreEtcd(snapshot);
        while ((await harness.versionOf(harness.cell)) <= version) await write(harness.cell, LOST_WRITES);
        await harness.cell.waitFor("the counter to pass", async () => (await harness.triggerCounter()) > counter);
        harness.cellWentBack();
      },
      end: () => each(links, ({ proxy }) => proxy.refuse(false)),
    });
  });

  test("etcd of the core restored, with a new history that passes the generator's position at once", async () => {
    const links = harness.links.all.filter(({ name }) => name === "generator > core");
    await harness.deploy("restored");
    const snapshot = harness.core.snapshotEtcd();
    await write(harness.core, FEW_WRITES);
    await harness.scale("restored", 5);
    await harness.isFollowed("restored", 5);
    const version = await harness.versionOf(harness.core);
    await harness.during({
      name: "etcd restored, core, overtaken",
      links,
      isOutage: true,
      begin: async () => {
        await each(links, ({ proxy }) => proxy.refuse(true));
        await harness.core.restoreEtcd(snapshot);
        // The last event of this Deployment. A stream that resumes after it never shows it.
        await harness.scale("restored", 6);
        while ((await harness.versionOf(harness.core)) <= version) await write(harness.core, FEW_WRITES);
      },
      end: () => each(links, ({ proxy }) => proxy.refuse(false)),
    });
    await harness.isFollowed("restored", 6);
  });
});
