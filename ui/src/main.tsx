import { render } from "preact";
import "@xterm/xterm/css/xterm.css";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/shell.css";
import "./styles/tree.css";
import "./styles/detail.css";
import { App } from "./app";

const root = document.getElementById("app");
if (root) render(<App />, root);
