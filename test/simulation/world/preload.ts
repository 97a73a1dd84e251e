/**
 * What the webhook loads on demand, loaded before a world begins: then an `import()` of it takes no time of the machine's, which virtual time
 * would not wait for, and one seed stays one history.
 */
import "../../../webhook/bypass.ts";
import "../../../webhook/counted-gate.ts";
import "../../../webhook/in-place.ts";
import "../../../webhook/outlive.ts";
import "../../../webhook/pending-mark.ts";
import "../../../webhook/permission.ts";
