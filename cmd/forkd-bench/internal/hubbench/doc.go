// Package hubbench is the benchmark of snapshots in registries: the time until a child of a snapshot that is still on its
// way answers, beside a child of the same snapshot pulled whole. It serves a registry behind a link with a rate and a
// delay, and removes all that it made. The trap: the daemon reads the registry, so this program runs on its host.
package hubbench
