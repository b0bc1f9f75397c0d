// Package contract runs the scenarios of sdk/contract against a daemon, through every client: raw
// REST, the Go client, the command line, and the SDKs for Python and TypeScript. A scenario is a
// list of calls with expected answers and errors. The package owns the format of scenarios and the
// protocol of drivers (docs/inside/formats/contract.md). Every operation of api/openapi.json has a
// scenario, which a test checks. The trap: the same scenarios run over the fake engine and over
// real VMs, so an expectation must be true in both.
package contract
