package roles

// SnapshotParts are Snapshots of an engine that keeps its parts in several objects.
type SnapshotParts struct {
	Catalog
	Deletion
	Creation
	Travels
}

// SandboxParts are Sandboxes of an engine that keeps its parts in several objects.
type SandboxParts struct {
	Forks
	Listing
	Accounts
	Lifetimes
	Trees
	Pauses
	Moves
	Consoles
}

// BranchParts are Branches of an engine that keeps its parts in several objects.
type BranchParts struct {
	Captures
	Promotions
	Groups
}
