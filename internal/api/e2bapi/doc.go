// Package e2bapi serves unmodified clients of E2B: the control API, the guest's daemon (envd) over
// forkd's agent, and ports of sandboxes, all on the listeners of the native API. It translates
// their requests to the engine's operations. It stores only the facts in package records: names,
// metadata and tokens. Texts, codes and formats are exactly E2B's, because clients parse them.
// Missing features are reported in the same format. The trap: clients repeat failed requests, so a
// failed request must leave no changes.
package e2bapi
