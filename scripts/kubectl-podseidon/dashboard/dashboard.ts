/** `dashboard`: a live page about all protectors, on this machine. */
import { podProtectorPath, withQuery } from "../../../shared/kube/client/api-path.ts";
import { type ClusterClient, listFailure } from "../invocation/cluster.ts";
import type { Command, Context } from "../invocation/command.ts";
import { CommandError, type ExitCode } from "../invocation/errors.ts";
import { Board } from "./board.ts";
import { Collector } from "./collector.ts";
import { DashboardServer } from "./dashboard-server.ts";
import { loadPageFiles } from "./page-files.ts";

const MAX_CORES = 20;
const MAX_PORT = 65_535;

function portOf(context: Context): number {
  const text = context.text("port") ?? "0";
  const port = Number(text);
  if (!/^\d+$/.test(text) || port > MAX_PORT) throw new CommandError(`--port: ${text} is no port`);
  return port;
}

/** Throws a sentence for the user where the page would stay empty. */
async function requireReadable(client: ClusterClient, namespace: string | undefined): Promise<void> {
  const path = podProtectorPath(namespace ?? "");
  const response = await client.raw("GET", withQuery(path, { limit: 1 }));
  if (response.status !== 200) throw new CommandError(`${client.name}: ${listFailure(path, response)}`);
}

async function run(context: Context, args: readonly string[]): Promise<ExitCode> {
  if (context.isForPrograms) throw new CommandError("the dashboard is a page for people: leave --output away");
  const { ports } = context;
  const port = portOf(context);
  const clients = args.length === 0 ? [await context.core()] : await Promise.all(args.map((one) => context.named(one)));
  // The dashboard shows all namespaces by default.
  const namespace = context.is("all-namespaces") ? undefined : context.text("namespace");
  for (const client of clients) await requireReadable(client, namespace);
  const startedMs = ports.clock.nowMs();
  const board = new Board(startedMs, (core) => clients[core]?.aheadMs ?? 0);
  const collectors = clients.map((client, core) => new Collector({ core, client, namespace, ports, board }));
  const server = await DashboardServer.start({
    ...{ board, namespace, port, startedMs, ports },
    watches: () => collectors.flatMap((collector) => collector.states()),
    page: await loadPageFiles(),
    cores: clients.map(({ name }) => name),
  });
  for (const collector of collectors) collector.start();
  context.progress.end();
  context.terminal.out(`${server.url}\n`);
  context.terminal.err("Everybody with this address can read the page. Ctrl-C ends it.\n");
  // A signal ends the process.
  return await new Promise<never>(() => {});
}

export const dashboard: Command = {
  name: "dashboard",
  usage: "[CORE-CONTEXT ...]",
  summary: "A live page about all protectors, in a browser on this machine.",
  doing: "looking for the cluster",
  description:
    "Prints the page's address, and serves it until Ctrl-C: protectors by health, capacity against promise over the " +
    "last hour, reservations, cells, and what was denied. Named contexts are several core clusters on one page. " +
    "It shows all namespaces unless --namespace is given. It only reads protectors and Events.",
  flags: { port: { type: "string", value: "PORT", help: "The port on 127.0.0.1. Default: a free port." } },
  arity: [0, MAX_CORES],
  run,
};
