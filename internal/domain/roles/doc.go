// Package roles declares what callers ask of an engine, one interface per role. The engine fills the
// roles from its rooms, package tenancy fills them again for one principal, and package httpapi gives
// each group of routes the roles it needs. The package has no code of its own. The trap: a new method
// belongs to one role, and Engine stays a struct, so that no type has to have all methods.
package roles
