package api

// Reason refines a Code if errors with the same code need different advice. It is as stable as a
// code. Most errors have no reason.
type Reason string

const (
	ReasonAgentOld            Reason = "agent_old"
	ReasonAgentSilent         Reason = "agent_silent"
	ReasonAncestryGone        Reason = "ancestry_gone"
	ReasonBranchFailed        Reason = "branch_failed"
	ReasonBranchesBusy        Reason = "branches_busy"
	ReasonChildBrokeOff       Reason = "child_broke_off"
	ReasonColdPause           Reason = "cold_pause"
	ReasonDependentSandboxes  Reason = "dependent_sandboxes"
	ReasonDependentSnapshots  Reason = "dependent_snapshots"
	ReasonDigestsNotReady     Reason = "digests_not_ready"
	ReasonDirectoryInUse      Reason = "directory_in_use"
	ReasonDirectoryRefused    Reason = "directory_refused"
	ReasonDiskLimit           Reason = "disk_limit"
	ReasonDiskLostWrites      Reason = "disk_lost_writes"
	ReasonDiskNoRoom          Reason = "disk_no_room"
	ReasonDiskPromised        Reason = "disk_promised"
	ReasonEvalTimeout         Reason = "eval_timeout"
	ReasonHostDescriptors     Reason = "host_descriptors"
	ReasonHostMemory          Reason = "host_memory"
	ReasonHostPressure        Reason = "host_pressure"
	ReasonHostThreads         Reason = "host_threads"
	ReasonImageDamaged        Reason = "image_damaged"
	ReasonImageMissing        Reason = "image_missing"
	ReasonImageNotFound       Reason = "image_not_found"
	ReasonKernelUnusable      Reason = "kernel_unusable"
	ReasonLimitUnsupported    Reason = "limit_unsupported"
	ReasonMemoryPromised      Reason = "memory_promised"
	ReasonNetOff              Reason = "net_off"
	ReasonNetRule             Reason = "net_rule"
	ReasonNetSecret           Reason = "net_secret"
	ReasonNetStarting         Reason = "net_starting"
	ReasonNetTap              Reason = "net_tap"
	ReasonNetTapBusy          Reason = "net_tap_busy"
	ReasonNotAFile            Reason = "not_a_file"
	ReasonNoAncestor          Reason = "no_ancestor"
	ReasonNoPlace             Reason = "no_place"
	ReasonNotInAncestry       Reason = "not_in_ancestry"
	ReasonOperatorOnly        Reason = "operator_only"
	ReasonOverlayNoRoom       Reason = "overlay_no_room"
	ReasonPauseTooLong        Reason = "pause_too_long"
	ReasonPinDamaged          Reason = "pin_damaged"
	ReasonPortRefused         Reason = "port_refused"
	ReasonPortTimeout         Reason = "port_timeout"
	ReasonPortsBusy           Reason = "ports_busy"
	ReasonProgramFailed       Reason = "program_failed"
	ReasonProgramTimeout      Reason = "program_timeout"
	ReasonQuota               Reason = "quota"
	ReasonReceiptNotFound     Reason = "receipt_not_found"
	ReasonRestoreRefused      Reason = "restore_refused"
	ReasonResumesBusy         Reason = "resumes_busy"
	ReasonSameTag             Reason = "same_tag"
	ReasonSandboxBroken       Reason = "sandbox_broken"
	ReasonSandboxEnded        Reason = "sandbox_ended"
	ReasonSandboxFailed       Reason = "sandbox_failed"
	ReasonSandboxPaused       Reason = "sandbox_paused"
	ReasonSandboxRolledBack   Reason = "sandbox_rolled_back"
	ReasonSnapshotDamaged     Reason = "snapshot_damaged"
	ReasonSnapshotNotFound    Reason = "snapshot_not_found"
	ReasonSnapshotNotReady    Reason = "snapshot_not_ready"
	ReasonStoreFull           Reason = "store_full"
	ReasonTagTaken            Reason = "tag_taken"
	ReasonTransitionBusy      Reason = "transition_busy"
	ReasonTransitionSlow      Reason = "transition_slow"
	ReasonWaitForChildren     Reason = "wait_for_children"
	ReasonWarmUpFailed        Reason = "warm_up_failed"
	ReasonGuestFilesElsewhere Reason = "guest_files_elsewhere"
	ReasonGuestFilesOff       Reason = "guest_files_off"
	ReasonSocketForeign       Reason = "socket_foreign"
	ReasonScopeMissing        Reason = "scope_missing"
	ReasonTokenUnwanted       Reason = "token_unwanted"
	ReasonVerifyFailed        Reason = "verify_failed"

	// These are the client's own.

	ReasonAgentLinks            Reason = "agent_links"
	ReasonGuestDirectoryMissing Reason = "guest_directory_missing"
	ReasonLocalDirectoryMissing Reason = "local_directory_missing"
	ReasonMaybeDone             Reason = "maybe_done"
	ReasonTLSClientCertificate  Reason = "tls_client_certificate"
	ReasonTLSScheme             Reason = "tls_scheme"
	ReasonTLSUntrusted          Reason = "tls_untrusted"
)

// ReasonRow gives the meaning of one reason.
type ReasonRow struct {
	Reason  Reason
	Meaning string
}

// Reasons returns all reasons, with the client's own last.
func Reasons() []ReasonRow {
	return []ReasonRow{
		{ReasonAgentOld, "the agent in the snapshot is older than the daemon and cannot do that"},
		{ReasonAgentSilent, "the sandbox's VM runs, but its agent does not answer"},
		{ReasonAncestryGone, "no snapshot that the sandbox came from is left"},
		{ReasonBranchFailed, "the branch that was to write the snapshot failed"},
		{ReasonBranchesBusy, "as many branches as are allowed at once are under way"},
		{ReasonChildBrokeOff, "a child that was forked for the comparison ended"},
		{ReasonColdPause, "a sandbox cannot be paused with its disk alone: it could not boot again"},
		{ReasonDependentSandboxes, "sandboxes run from the snapshot"},
		{ReasonDependentSnapshots, "other snapshots are built on the snapshot"},
		{ReasonDigestsNotReady, "the snapshot's digests are still being computed"},
		{ReasonDirectoryInUse, "another daemon uses the directory"},
		{ReasonDirectoryRefused, "the directory was not made by forkd, or others may write to it"},
		{ReasonDiskLimit, "the sandbox is paused: what it wrote takes as much of the store as its limit allows"},
		{ReasonDiskLostWrites, "a write of the sandbox's disk failed on the host"},
		{ReasonDiskNoRoom, "the sandbox is paused until its disk has room on the host"},
		{ReasonDiskPromised, "sandboxes could come to fill more of the store than the daemon may promise"},
		{ReasonEvalTimeout, "the code ran into its limit, and its interpreter may have been restarted"},
		{ReasonHostDescriptors, "the daemon has not the descriptors left for another VM"},
		{ReasonHostMemory, "the host's free memory, less a reserve, is below what was asked for"},
		{ReasonHostPressure, "the host is under pressure, and makes no VM until that is less"},
		{ReasonHostThreads, "the host, or the daemon's cgroup, has not the threads left for another VM"},
		{ReasonImageDamaged, "a file of the image is missing or altered"},
		{ReasonImageMissing, "the request names nothing to boot from"},
		{ReasonImageNotFound, "no image has that name"},
		{ReasonKernelUnusable, "the kernel is not one that can be booted"},
		{ReasonLimitUnsupported, "the host cannot enforce that limit: a controller of cgroup v2 is missing, or not the daemon's"},
		{ReasonMemoryPromised, "sandboxes could come to take more of the host's memory than the daemon may promise"},
		{ReasonNetOff, "the daemon has no forkd-net, so no sandbox has a network"},
		{ReasonNetRule, "a rule of a network policy cannot be read; `rule` is it, `why` what is wrong"},
		{ReasonNetSecret, "a hidden value of a header was sent back, and there is none that it stands for"},
		{ReasonNetStarting, "forkd-net does not answer, and is being started again"},
		{ReasonNetTap, "the tap is not one that a sandbox can have here, or not together with what else was asked for"},
		{ReasonNetTapBusy, "the tap is in use; `sandbox` has it, if it is one of the daemon's"},
		{ReasonNotAFile, "the path does not lead to a regular file on the daemon's host"},
		{ReasonNoAncestor, "the two sides of a merge have no common snapshot that is left"},
		{ReasonNoPlace, "the sandbox does not descend from the one that it should replace, or that one has ended"},
		{ReasonNotInAncestry, "the sandbox did not come from that snapshot; `tags` are those that would do"},
		{ReasonOperatorOnly, "that is for the operator and its keys: it concerns all tenants, or the host"},
		{ReasonOverlayNoRoom, "the store has no room for what the sandboxes may write"},
		{ReasonPauseTooLong, "the pause would have been longer than the request allows"},
		{ReasonPinDamaged, "a record of what is pinned cannot be read, so nothing is collected"},
		{ReasonPortRefused, "nothing in the guest listens on `port`"},
		{ReasonPortTimeout, "the guest did not accept a connection to `port` in time"},
		{ReasonPortsBusy, "the guest has as many connections from outside as its agent allows"},
		{ReasonProgramFailed, "the program of a derivation failed; nothing was kept"},
		{ReasonProgramTimeout, "the program of a derivation ran into its limit; nothing was kept"},
		{ReasonQuota, "a quota of the key is used up; details: `quota`"},
		{ReasonReceiptNotFound, "there is no receipt, or it is no longer kept"},
		{ReasonRestoreRefused, "the VMM cannot restore the snapshot: another CPU, another format"},
		{ReasonResumesBusy, "as many sandboxes as may wait for it are being resumed"},
		{ReasonSameTag, "the new snapshot has the tag of the old one"},
		{ReasonSandboxBroken, "programs that commands need were removed in the sandbox"},
		{ReasonSandboxEnded, "the sandbox was killed, or its VM has ended"},
		{ReasonSandboxFailed, "the sandbox's VM has ended without being told to, and is listed as failed"},
		{ReasonSandboxPaused, "the sandbox is paused, or was paused meanwhile"},
		{ReasonSandboxRolledBack, "the sandbox was rolled back meanwhile"},
		{ReasonSnapshotDamaged, "a file of the snapshot was found altered, and nothing is made from it"},
		{ReasonSnapshotNotFound, "no snapshot has that tag"},
		{ReasonSnapshotNotReady, "the snapshot is being written"},
		{ReasonStoreFull, "the store's file system is full; nothing half-written remains"},
		{ReasonTagTaken, "a snapshot has that tag already"},
		{ReasonTransitionBusy, "as many requests as may wait for that sandbox, or for the tenant's, wait already"},
		{ReasonTransitionSlow, "the sandbox is still being paused, resumed or branched after the longest wait"},
		{ReasonWaitForChildren, "children were asked for, but not to wait for their snapshot"},
		{ReasonWarmUpFailed, "the warm-up failed, or a service was not ready in time"},
		{ReasonGuestFilesElsewhere, "the path is in none of the directories that the daemon opens files in"},
		{ReasonGuestFilesOff, "the daemon was not told to open files by path"},
		{ReasonSocketForeign, "the daemon's socket is another user's, and the daemon has no token"},
		{ReasonScopeMissing, "the key lacks the scope; details: `scope`"},
		{ReasonTokenUnwanted, "a token was shown to a daemon that has none"},
		{ReasonVerifyFailed, "the snapshot's files could not be verified"},
		{ReasonAgentLinks, "the agent in the sandbox is of an older forkd and makes no links"},
		{ReasonGuestDirectoryMissing, "the directory to copy into is not in the sandbox"},
		{ReasonLocalDirectoryMissing, "the directory to copy into is not on this host"},
		{ReasonMaybeDone, "the connection broke off before the answer to a request that changes something"},
		{ReasonTLSClientCertificate, "the daemon wants a certificate of its clients, and none was shown or not one that it takes"},
		{ReasonTLSScheme, "the URL says https and the daemon speaks no TLS, or the other way round"},
		{ReasonTLSUntrusted, "the daemon's certificate is not the pinned one, or nobody that is trusted here has signed it"},
	}
}
