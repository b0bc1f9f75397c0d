// Package arrivals is the room of snapshots that are used before they have arrived whole. It registers their absent
// files with the process that fetches them (package images/fetcher), records the order in which a child uses them, makes
// ordinary layers and files of those that are complete, and reports outages. It fetches nothing itself. Package op calls
// it. The trap: a sandbox that needs absent content during an outage is stalled, and its VM cannot be paused or saved
// until the content has come.
package arrivals
