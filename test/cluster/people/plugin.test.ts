/** `kubectl podseidon`, run by kubectl itself, on a core cluster and a cell with the built processes. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import type { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { ask } from "../../support/cluster/ask.ts";
import { setReady } from "../../support/cluster/pods.ts";
import { readProtector, reservationCount } from "../../support/cluster/protectors.ts";
import { metricsOf } from "../../support/documentation.ts";
import { NAME, NAMESPACE, NODE, PluginEstate, PODS } from "./plugin-estate.ts";

let asking: PluginEstate;
let estate: TestEnvironment;

const plugin = (...args: readonly string[]) => asking.plugin(...args);

/** What an operator sees, for whoever reads the test's output. */
function show(command: string, { stdout }: { readonly stdout: string }): void {
  process.stdout.write(`$ kubectl podseidon ${command}\n${stdout}\n`);
}

const why = (pod: string) => plugin("why", pod, "-n", NAMESPACE);

beforeAll(async () => {
  asking = await PluginEstate.start();
  estate = asking.environment;
});

afterAll(() => asking?.stop());

describe("while all is well", () => {
  test("status has a line for each protector", async () => {
    const { code, stdout } = await plugin("status", "-A");
    expect(code).toBe(0);
    const [head, line] = stdout.split("\n");
    expect(head?.split(/\s{2,}/)).toEqual([
      "NAMESPACE",
      "NAME",
      "REQUIRED",
      "AVAILABLE",
      "RESERVED",
      "ALLOWED",
      "CELLS",
      "OLDEST",
      "STATE",
    ]);
    expect(line?.split(/\s{2,}/)).toEqual([NAMESPACE, NAME, "3", "4/4", "0", "1", "1/1", "-", "ok"]);
  });

  test("status --output wide names the workload and where the promise comes from", async () => {
    const { stdout } = await plugin("status", "-A", "-o", "wide");
    const [head, line] = stdout.split("\n");
    expect(head?.split(/\s{2,}/).slice(-4)).toEqual(["SOURCE", "PROMISE", "SUSPENDED UNTIL", "STATE"]);
    expect(line?.split(/\s{2,}/).slice(-4)).toEqual(["Deployment web", expect.stringMatching(/\S/), "-", "ok"]);
  });

  test("status of one shows its source, cells and conditions", async () => {
    const result = await plugin("status", NAME, "-n", NAMESPACE);
    const { stdout } = result;
    show(`status ${NAME} --namespace ${NAMESPACE}`, result);
    expect(stdout).toContain("Source:         Deployment web");
    expect(stdout).toMatch(/cell +4\/4 +0 +\d+s +/);
    expect(stdout).toContain("Reservations: none");
    expect(stdout).toMatch(/Healthy +True +EnoughAvailable/);
  });

  test("why says that a deletion would be allowed, and deletes nothing", async () => {
    const { code, stdout } = await why("web-0");
    expect(code).toBe(0);
    expect(stdout).toContain("Deletion:   yes: it would be allowed now");
    expect(stdout).toContain(`PodProtector ${NAMESPACE}/${NAME}   agrees: there is quota`);
    expect(reservationCount(await readProtector(estate.core, NAMESPACE, NAME))).toBe(0);
  });

  test("why answers programs in JSON", async () => {
    const { stdout } = await plugin("why", "web-0", "-n", NAMESPACE, "--evict", "-o", "json");
    expect(JSON.parse(stdout)).toMatchObject({
      kind: "evict",
      cell: "cell",
      answer: { verdict: "admitted" },
      opinions: [{ allowed: true, view: { name: NAME, required: 3, available: 4 } }],
    });
  });

  test("gates names a closed readiness gate, and who wrote it", async () => {
    const cell = estate.cell("cell");
    const pod = `/api/v1/namespaces/${NAMESPACE}/pods/cold`;
    const spec = { readinessGates: [{ conditionType: "example.com/warm" }], containers: [{ name: "a", image: "a" }] };
    await cell.apply([{ apiVersion: "v1", kind: "Pod", metadata: { name: "cold", namespace: NAMESPACE }, spec }]);
    const conditions = [{ type: "example.com/warm", status: "False", reason: "Cold" }];
    const contentType = "application/strategic-merge-patch+json";
    await cell.admin.call("PATCH", `${pod}/status?fieldManager=warmer`, { status: { conditions } }, { contentType });
    const { code, stdout } = await plugin("gates", "cold", "-n", NAMESPACE);
    expect(stdout).toMatch(/example\.com\/warm +closed +False +\S+ +warmer +Cold/);
    expect(code).toBe(1);
    await cell.admin.call("DELETE", pod);
  });

  test("drain-check tells which pods of the node go at once and which wait", async () => {
    const { code, stdout } = await plugin("drain-check", NODE, "-o", "json");
    expect(code).toBe(0);
    const { pods } = JSON.parse(stdout);
    expect(pods.map(({ now }: { now: string }) => now)).toEqual(PODS.map(() => "admitted"));
    expect(pods.map(({ together }: { together: string }) => together)).toEqual(["goes", "waits", "waits", "waits"]);
  });

  test("doctor finds the installation in order", async () => {
    const found = await plugin("doctor");
    show("doctor", found);
    expect(found.stdout).not.toMatch(/^(FAIL|\?) /m);
    expect(found.code).toBe(0);
    for (const line of [
      /^ok +core +crd +keeps every field/m,
      /^ok +core +protectors +1 protector, none in trouble/m,
      /^ok +core +cell cell +counted in 1 protector, heartbeat \d+s ago/m,
      /^ok +cell +webhook configuration +asks as cell cell, refuses when it gets no answer/m,
      /^(ok|WARN) +cell +CA in the webhook configuration +(valid for|expires in)/m,
      /^ok +cell +webhook +answers/m,
      /^ok +cell +backups +of 1 protector/m,
    ])
      expect(found.stdout).toMatch(line);
  });

  test("doctor of a core alone asks nothing of it that a cell has", async () => {
    const { code, stdout } = await plugin("doctor", "core");
    expect(stdout).toMatch(/^ok +core +pods +none in this cluster/m);
    expect(stdout).not.toMatch(/^(FAIL|\?) /m);
    expect(code).toBe(0);
  });

  test("doctor finds a counted gate that is asked for and that nobody adds", async () => {
    const path = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors/${NAME}`;
    const annotate = (value: string | null): Promise<unknown> =>
      estate.core.admin.call("PATCH", path, {
        metadata: { annotations: { "podseidon.kubewharf.io/counted-gate": value } },
      });
    await annotate("enabled");
    const { stdout } = await plugin("doctor");
    await annotate(null);
    expect(stdout).toMatch(
      /^WARN +cell +counted gate +protector shop\/deployment-web asks for it, and nobody adds it/m,
    );
    expect((await plugin("doctor")).stdout).not.toContain("counted gate");
  });

  test("words are completed, by the plugin and by kubectl", async () => {
    const own = await asking.run("kubectl-podseidon", ["__complete", "why", "-n", NAMESPACE, "web-"]);
    expect(own.stdout.trim().split("\n")).toEqual([...PODS, ":4"]);
    const asked = await asking.run(asking.kubectl, ["__complete", "podseidon", "drain-check", ""]);
    expect(asked.stdout.split("\n")).toContain(NODE);
    expect((await asking.run("kubectl-podseidon", ["__complete", "sus"])).stdout).toBe("suspend\n:4\n");
  });

  test("the processes have every metric that alerts and dashboard ask for", async () => {
    const aggregator = estate.aggregators.get("cell");
    const components = [...estate.webhooks.map(({ component }) => component), asking.generator, aggregator];
    const pages = await Promise.all(
      components.map(async (one) => (one === undefined ? "" : await (await fetch(`${one.healthUrl}/metrics`)).text())),
    );
    const declared = new Set(
      pages
        .join("")
        .match(/^# TYPE podseidon_\S+/gm)
        ?.map((line) => line.slice(7 + "podseidon_".length)),
    );
    const text = ["rules.yaml", "dashboard.json"].map((file) =>
      readFileSync(join(root, "manifests/monitoring", file), "utf8"),
    );
    const asked = metricsOf(text.join("\n"));
    // Of components that do not run here. Without certificates, nobody keeps the webhook configuration's authorities.
    const elsewhere =
      /^(certificates_|update_trigger_|registration_ca_current$|eviction_retry_|generator_cluster_budgets_)/;
    const here = asked.filter((name) => !elsewhere.test(name));
    expect(here.filter((name) => !declared.has(name))).toEqual([]);
  });

  test.each<[string, string[], string]>([
    ["a context that is not there", ["status", "--context", "nowhere"], 'no context "nowhere"'],
    ["a pod that is not there", ["why", "web-9", "-n", NAMESPACE], `there is no pod ${NAMESPACE}/web-9`],
    ["a flag that is not there", ["status", "--fast"], "see kubectl podseidon status --help"],
    ["a cell that nobody counts", ["remove-cell", "moon", "-A"], "counts a cell moon"],
  ])("%s is an error that says what to do", async (_, args, text) => {
    const { code, stderr } = await plugin(...args);
    expect(stderr).toContain(text);
    expect(code).toBe(2);
  });
});

describe("when quota is used", () => {
  test("why names the disruption that holds it, and since when", async () => {
    // Nobody accounts for the deletion, so that its reservation stays.
    await estate.aggregators.get("cell")?.stop();
    const cell = estate.cell("cell");
    // Every client repeats a request after a busy response, as when a loaded core did not answer in time.
    const path = `/api/v1/namespaces/${NAMESPACE}/pods/web-3?gracePeriodSeconds=0`;
    await cell.waitFor(
      "the deletion to be let go",
      async () => (await cell.admin.request("DELETE", path)).status < 300,
    );
    const result = await why("web-1");
    const { code, stdout } = result;
    show(`why web-1 --namespace ${NAMESPACE}`, result);
    show("status --all-namespaces", await plugin("status", "-A"));
    show(`drain-check ${NODE}`, await plugin("drain-check", NODE));
    expect(code).toBe(1);
    expect(stdout).toContain("Deletion:   no: it would be denied now; this passes by itself");
    expect(stdout).toContain("refuses: the spare pods are reserved by disruptions under way");
    expect(stdout).toMatch(/Held by, the oldest first:\n.*\n +cell +web-3 +DELETE +1 +\d+s ago +\d+s ago/);
    expect((await plugin("status", "-n", NAMESPACE)).stdout).toMatch(/deployment-web +3 +4\/4 +1 +0 +1\/1 +\d+s +busy/);
    await estate.startAggregator("cell");
    await asking.untilCounted(3);
  });

  test("why names the pods that are missing", async () => {
    await setReady(estate.cell("cell"), NAMESPACE, "web-2", false);
    await asking.untilCounted(2);
    const { code, stdout } = await why("web-1");
    expect(code).toBe(1);
    expect(stdout).toContain("refuses: no more pods are available than must be (needs 3, 2 available, 0 reserved)");
    expect(stdout).toMatch(/Not available in this cluster:\n.*\n +web-2 +not ready/);
    expect((await plugin("doctor")).stdout).toMatch(
      /FAIL +core +protectors +1 below their minimum: shop\/deployment-web/,
    );
  });

  test("a refusal is an Event at the pod, in its cell, and at the protector, in its core", async () => {
    const cell = estate.cell("cell");
    const { status } = await ask(cell, "DELETE", `/api/v1/namespaces/${NAMESPACE}/pods/web-1`);
    expect(status).toBe(429);
    for (const [cluster, kind, name] of [
      [cell, "pod", "web-1"],
      [estate.core, "podprotector", NAME],
    ] as const) {
      const described = async (): Promise<string> =>
        (await cluster.kubectl(["describe", kind, name, "--namespace", NAMESPACE])).stdout;
      await cluster.waitFor(`an Event of ${kind} ${name}`, async () =>
        /Warning +DisruptionRefused .* podseidon-webhook +pod shop\/web-1 may not be deleted now/.test(
          await described(),
        ),
      );
    }
  });

  test("suspend changes nothing without --yes, lets pass with it, and resume ends it", async () => {
    const dry = await plugin("suspend", NAME, "-n", NAMESPACE, "--for", "10m");
    expect(dry.stdout).toContain("would be suspended for 10m");
    expect(dry.code).toBe(1);
    expect(dry.stdout).toContain("Nothing was changed. Repeat the command with --yes");
    expect((await why("web-1")).code).toBe(1);
    const watched = asking.going("status", "--watch", "--all-namespaces");
    await estate.core.waitFor("the first table", async () => watched.printed().includes(NAME));
    const made = await plugin("suspend", NAME, "-n", NAMESPACE, "--for", "10m", "--reason", "a move", "--yes");
    expect(made.stdout).toContain(
      "Warning: while shop/deployment-web is suspended every deletion of its pods is allowed",
    );
    // The webhook learns of it by its watch.
    await estate.core.waitFor("the suspension to be in force", async () => (await why("web-1")).code === 0);
    expect((await why("web-1")).stdout).toContain(`Warning:    PodProtector ${NAMESPACE}/${NAME} is suspended`);
    expect((await plugin("status", NAME, "-n", NAMESPACE)).stdout).toMatch(/Suspended: +until .*: a move/);
    await estate.core.waitFor("a line for the suspension", async () => / suspended\n$/.test(watched.printed()));
    await plugin("resume", NAME, "-n", NAMESPACE);
    await estate.core.waitFor("the end of the suspension", async () => (await why("web-1")).code === 1);
    await estate.core.waitFor("a line for its end", async () => !/ suspended\n$/.test(watched.printed()));
    expect(watched.printed().match(/STATE/g)).toHaveLength(1);
    await watched.end();
  });
});

describe("where nothing holds pods back, drain-check says so", () => {
  async function untilSaid(why: string): Promise<void> {
    const head = `UNPROTECTED: ${why} before pods of namespace ${NAMESPACE} go`;
    await estate.core.waitFor(head, async () => (await plugin("drain-check", NODE)).stdout.startsWith(head));
    const { code, stdout } = await plugin("drain-check", NODE, "--core-context", "core");
    expect(stdout).toMatch(new RegExp(`^UNPR.* --core-context core\n[^]*web-1 +${NAME} +admitted +goes +${why}`));
    expect(code).toBe(1);
  }

  test("as with a webhook in dry-run mode", async () => {
    await estate.replaceWebhooks(["webhook-dry"], ["--dry-run"]);
    await untilSaid("the webhook only warns");
    await estate.replaceWebhooks(["webhook-2"]);
    await estate.core.waitFor("the webhook to deny", async () => (await why("web-1")).code === 1);
  });

  test("as in a namespace that the webhook configuration leaves out, and so does why", async () => {
    const cell = estate.cell("cell");
    const kinds = ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"];
    const found = await Promise.all(
      kinds.map(async (kind) => (await cell.kubectl(["get", kind, "podseidon", "--output", "json"])).stdout),
    );
    const declare = (namespaceSelector: object): Promise<unknown> =>
      Promise.all(
        found.map((text) => {
          const { metadata, webhooks, ...rest } = JSON.parse(text);
          const hooks = webhooks.map((webhook: object) => ({ ...webhook, namespaceSelector }));
          const input = JSON.stringify({ ...rest, metadata: { name: metadata.name }, webhooks: hooks });
          return cell.apply(input);
        }),
      );
    await declare({ matchLabels: { "podseidon.kubewharf.io/enforced-namespace": "true" } });
    await untilSaid("the webhook is not called");
    const { code, stdout } = await plugin("why", "web-1", "-n", NAMESPACE, "--core-context", "core");
    const text = /^UNPROTECTED: cell does not call the webhook .* See kubectl podseidon doctor --core-context core\n/;
    expect([code, stdout]).toEqual([1, expect.stringMatching(text)]);
    await declare({});
    await estate.core.waitFor("the webhook to be asked", async () => !(await why("web-1")).stdout.includes("UNPROT"));
  });
});

describe("Events tell each change of a protector", () => {
  const path = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors`;

  /** Waits for an Event about the protector; resolves with its message. */
  async function toldOf(name: string, reason: string): Promise<string> {
    const selector = `involvedObject.name=${name},reason=${reason}`;
    const list = `/api/v1/namespaces/${NAMESPACE}/events?fieldSelector=${encodeURIComponent(selector)}`;
    let message: unknown;
    await estate.core.waitFor(`the Event ${reason} of ${name}`, async () => {
      message = field(await estate.core.admin.get(list), "items", 0, "message");
      return message !== undefined;
    });
    return String(message);
  }

  test("who suspended it, why and until when, and who ended that", async () => {
    expect(await toldOf(NAME, "SuspensionStarted")).toMatch(
      /^suspended until 20\S+Z, no deletion is refused: a move; by \S+ at 20\S+Z, as kubectl podseidon says$/,
    );
    expect(await toldOf(NAME, "SuspensionEnded")).toMatch(/^the suspension was ended; by \S+ at 20/);
  });

  test("a promise from 8 to 4 and by whom, and that one made by hand is deleted", async () => {
    const spec = { minAvailable: 8, minReadySeconds: 0, selector: { matchLabels: { app: "by-hand" } } };
    const kind = { apiVersion: "podseidon.kubewharf.io/v1alpha1", kind: "PodProtector" };
    await estate.core.admin.call("POST", `${path}?fieldManager=alice`, {
      ...kind,
      metadata: { name: "by-hand" },
      spec,
    });
    expect(await toldOf("by-hand", "ProtectorCreated")).toBe("created: 8 pods stay available; by alice");
    await estate.core.admin.call("PATCH", `${path}/by-hand?fieldManager=bob`, { spec: { minAvailable: 4 } });
    expect(await toldOf("by-hand", "PromiseLowered")).toBe("minAvailable changed from 8 to 4; by bob");
    await estate.core.admin.call("DELETE", `${path}/by-hand`);
    expect(await toldOf("by-hand", "ProtectorDeleted")).toContain("audit log of the core");
  });
});

describe("when a part is gone for good", () => {
  test("remove-cell forgets it, once the generator has acted", async () => {
    const path = "/api/v1/namespaces/podseidon-system/configmaps/podseidon-cells";
    await estate.core.waitFor(
      "the cell to acknowledge the release register",
      async () => field(await estate.core.admin.get(path), "data", "cell") !== undefined,
    );
    await estate.aggregators.get("cell")?.stop();
    const dry = await plugin("remove-cell", "cell", "-A");
    expect(dry.stdout).toContain("would be cleared of cell cell (server dry run)");
    expect(dry.stdout).toContain("no longer counts 2 available pods of cell");
    expect((await plugin("remove-cell", "cell", "-A", "--yes")).code).toBe(0);
    const { stdout } = await plugin("status", NAME, "-n", NAMESPACE);
    expect(stdout).toMatch(/cell +0\/0 +0 +- +- +removed/);
    expect(field(await estate.core.admin.get(path), "data", "cell")).toBeUndefined();
  });

  test("release of a workload that is there says that the workload is annotated", async () => {
    const { code, stdout } = await plugin("release", NAME, "-n", NAMESPACE);
    expect(stdout).toContain("Deployment web is there: it gets the annotation podseidon.kubewharf.io/protect=false");
    expect(code).toBe(1);
  });

  test("release lets the pods of a vanished workload go", async () => {
    const path = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/web`;
    await asking.replaceGenerator(async () => {
      await estate.core.admin.call("PATCH", path, { metadata: { finalizers: null } });
      await estate.core.admin.call("DELETE", path);
    });
    const dry = await plugin("release", NAME, "-n", NAMESPACE);
    expect(dry.stdout).toContain("would be released (server dry run)");
    expect((await plugin("release", NAME, "-n", NAMESPACE, "--yes")).code).toBe(0);
    // The command has waited for the generator.
    expect((await plugin("status", "-n", NAMESPACE)).stdout).toMatch(/^There are no protectors/);
  });

  test("doctor finds that nobody is asked any more", async () => {
    for (const kind of ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"])
      await estate.cell("cell").admin.call("DELETE", `/apis/admissionregistration.k8s.io/v1/${kind}/podseidon`);
    // The apiserver's own cache of webhook configurations follows a moment later.
    let last: Awaited<ReturnType<typeof plugin>> | undefined;
    await estate.core.waitFor("the webhook configuration to be out of force", async () => {
      last = await plugin("doctor");
      return /FAIL +cell +webhook +was not asked/.test(last.stdout);
    });
    expect(last?.code).toBe(1);
    expect(last?.stdout).toMatch(/FAIL +cell +webhook configuration +the cluster does not call the webhook/);
    expect(last?.stdout).toContain("apply the webhook configuration of the cluster's overlay again");
  });
});
