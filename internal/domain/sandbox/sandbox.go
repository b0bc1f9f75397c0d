// Package sandbox defines the types at the engine's boundary: requests, results, states and errors. The types are
// plain data; package engine and the packages below it do the work. All of them may import this package. Packages
// above the engine, such as httpapi, may too, and so need to import no part of the engine. Beware: an Info or a
// SnapshotInfo is a copy. Changing it has no effect.
package sandbox
