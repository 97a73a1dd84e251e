/** The page, which shows the plugin's data. Loads nothing from other sites, and changes nothing. */
import { render } from "preact";
import { App } from "./app.tsx";
import { startClock } from "./browser-clock.ts";
import { connect } from "./connection.ts";
import { followAddress } from "./detail-dialog.tsx";
import { SEARCH_ID } from "./protector-table.tsx";
import { store } from "./store.ts";

/** `/` moves the focus to the search, unless the user types into a field or reads a detail. */
function goToSearch(event: KeyboardEvent): void {
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || store.selected.value !== undefined) return;
  event.preventDefault();
  document.getElementById(SEARCH_ID)?.focus();
}

const place = document.getElementById("page");
if (place !== null) {
  startClock();
  addEventListener("hashchange", followAddress);
  addEventListener("keydown", goToSearch);
  followAddress();
  render(<App />, place);
  connect(store);
}
