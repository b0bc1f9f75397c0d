package api

// Reason refines a Code if errors with the same code need different advice. It is as stable as a
// code. Most errors have no reason.
type Reason string

//go:generate go run ./internal/contractgen

// Reasons of daemons and gateways. `go generate ./api` repeats this group in internal/domain/sandbox.
const (
	ReasonAgentOld            Reason = "agent_old"
	ReasonAgentSilent         Reason = "agent_silent"
	ReasonAncestryGone        Reason = "ancestry_gone"
	ReasonAnswerNoRoom        Reason = "answer_no_room"
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
	ReasonLabelReserved       Reason = "label_reserved"
	ReasonLimitUnsupported    Reason = "limit_unsupported"
	ReasonMemoryPromised      Reason = "memory_promised"
	ReasonNetOff              Reason = "net_off"
	ReasonNetRule             Reason = "net_rule"
	ReasonNetSecret           Reason = "net_secret"
	ReasonNetStarting         Reason = "net_starting"
	ReasonNetTap              Reason = "net_tap"
	ReasonNetTapBusy          Reason = "net_tap_busy"
	ReasonNetworkAlias        Reason = "network_alias"
	ReasonNetworkEmpty        Reason = "network_empty"
	ReasonNetworkExists       Reason = "network_exists"
	ReasonNetworkInUse        Reason = "network_in_use"
	ReasonNetworkNotFound     Reason = "network_not_found"
	ReasonNotAFile            Reason = "not_a_file"
	ReasonNoAncestor          Reason = "no_ancestor"
	ReasonNoNode              Reason = "no_node"
	ReasonNodeSilent          Reason = "node_silent"
	ReasonNodeUnreachable     Reason = "node_unreachable"
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
	ReasonSandboxBound        Reason = "sandbox_bound"
	ReasonSandboxMoved        Reason = "sandbox_moved"
	ReasonSandboxUnsettled    Reason = "sandbox_unsettled"
	ReasonSandboxPaused       Reason = "sandbox_paused"
	ReasonSandboxRolledBack   Reason = "sandbox_rolled_back"
	ReasonSecretNotFound      Reason = "secret_not_found"
	ReasonSecretUnreadable    Reason = "secret_unreadable"
	ReasonSecretsOff          Reason = "secrets_off"
	ReasonIdentityOff         Reason = "identity_off"
	ReasonSnapshotDamaged     Reason = "snapshot_damaged"
	ReasonSnapshotPartial     Reason = "snapshot_partial"
	ReasonSnapshotNotFound    Reason = "snapshot_not_found"
	ReasonSnapshotNotReady    Reason = "snapshot_not_ready"
	ReasonSnapshotPinned      Reason = "snapshot_pinned"
	ReasonStoreFull           Reason = "store_full"
	ReasonTagTaken            Reason = "tag_taken"
	ReasonTainted             Reason = "tainted"
	ReasonTransitionBusy      Reason = "transition_busy"
	ReasonTransitionSlow      Reason = "transition_slow"
	ReasonUnsigned            Reason = "unsigned"
	ReasonVolumeExists        Reason = "volume_exists"
	ReasonVolumeHeld          Reason = "volume_held"
	ReasonVolumeMode          Reason = "volume_mode"
	ReasonVolumeNotFound      Reason = "volume_not_found"
	ReasonVolumeOther         Reason = "volume_other"
	ReasonVolumePath          Reason = "volume_path"
	ReasonVolumePrivate       Reason = "volume_private"
	ReasonVolumeSlots         Reason = "volume_slots"
	ReasonWaitForChildren     Reason = "wait_for_children"
	ReasonWarmUpFailed        Reason = "warm_up_failed"
	ReasonGuestFilesElsewhere Reason = "guest_files_elsewhere"
	ReasonGuestFilesOff       Reason = "guest_files_off"
	ReasonSocketForeign       Reason = "socket_foreign"
	ReasonScopeMissing        Reason = "scope_missing"
	ReasonTokenUnwanted       Reason = "token_unwanted"
	ReasonVerifyFailed        Reason = "verify_failed"
)

// Reasons of the client's own errors.
const (
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
		{ReasonAgentOld, "the snapshot's agent is older than the daemon and lacks the feature"},
		{ReasonAgentSilent, "the sandbox's VM runs, but its agent does not answer"},
		{ReasonAncestryGone, "all snapshots of the sandbox's ancestry were deleted"},
		{ReasonAnswerNoRoom, "the code has run, but its answer found no room in the daemon's memory"},
		{ReasonBranchFailed, "the branch that should have written the snapshot failed"},
		{ReasonBranchesBusy, "too many branches are in progress"},
		{ReasonChildBrokeOff, "a child forked for the comparison ended"},
		{ReasonColdPause, "the sandbox cannot be paused with its disk only, because it could not boot again"},
		{ReasonDependentSandboxes, "sandboxes forked from the snapshot are running"},
		{ReasonDependentSnapshots, "other snapshots are built on the snapshot"},
		{ReasonDigestsNotReady, "the snapshot's digests are still being computed"},
		{ReasonDirectoryInUse, "another daemon uses the directory"},
		{ReasonDirectoryRefused, "the directory was not made by forkd, or other users can write to it"},
		{ReasonDiskLimit, "the sandbox is paused, because its writes have reached its disk limit"},
		{ReasonDiskLostWrites, "a write of the sandbox's disk failed on the host"},
		{ReasonDiskNoRoom, "the sandbox is paused until the host has space for its disk"},
		{ReasonDiskPromised, "sandbox disks would exceed the store's overcommit limit"},
		{ReasonEvalTimeout, "the code reached its time limit, and its interpreter may have been restarted"},
		{ReasonHostDescriptors, "the daemon has too few file descriptors left for another VM"},
		{ReasonHostMemory, "the host's free memory, without the reserve, is too small for the request"},
		{ReasonHostPressure, "the host is under pressure; new VMs are refused until it decreases"},
		{ReasonHostThreads, "the host or the daemon's cgroup has too few threads left for another VM"},
		{ReasonImageDamaged, "a file of the image is missing or changed"},
		{ReasonImageMissing, "the request names no image, kernel or snapshot"},
		{ReasonImageNotFound, "no image has that name"},
		{ReasonKernelUnusable, "the kernel cannot be booted"},
		{ReasonLabelReserved, "only the daemon sets and removes that label"},
		{ReasonLimitUnsupported, "the host cannot enforce the limit, because a cgroup v2 controller is missing or not delegated"},
		{ReasonMemoryPromised, "sandboxes would exceed the overcommit limit of the host's memory"},
		{ReasonNetOff, "the daemon has no forkd-net, so sandboxes have no network"},
		{ReasonNetRule, "a rule of a network policy is invalid; details: `rule`, `why`"},
		{ReasonNetSecret, "a header has a masked value, but the current policy has no value for it"},
		{ReasonNetStarting, "forkd-net does not answer and is being restarted"},
		{ReasonNetTap, "the tap is not available to sandboxes, or conflicts with another field of the request"},
		{ReasonNetTapBusy, "the tap is in use; details: `sandbox`, if it is one of this daemon"},
		{ReasonNetworkAlias, "the alias is invalid or taken"},
		{ReasonNetworkEmpty, "no sandbox of the private network runs"},
		{ReasonNetworkExists, "the owner has a private network with that name"},
		{ReasonNetworkInUse, "the private network has members"},
		{ReasonNetworkNotFound, "the owner has no private network with that name"},
		{ReasonNotAFile, "the path is not a regular file on the daemon's host"},
		{ReasonNoAncestor, "the two sides of a merge have no common snapshot that is left"},
		{ReasonNoNode, "no node of the cluster can take the request; from a gateway only"},
		{ReasonNodeSilent, "a node of the cluster sent no answer, and may have made the sandboxes; from a gateway only"},
		{ReasonNodeUnreachable, "the node of the sandbox, or the only node with the object, cannot be reached; from a gateway only"},
		{ReasonNoPlace, "the sandbox does not descend from the one that it should replace, or that one has ended"},
		{ReasonNotInAncestry, "the snapshot is not in the sandbox's ancestry; details: `tags`, the valid choices"},
		{ReasonOperatorOnly, "only the operator is allowed to do this, because it affects all tenants or the host"},
		{ReasonOverlayNoRoom, "the store has too little space for the sandboxes' writes"},
		{ReasonPauseTooLong, "the pause would have exceeded the request's limit"},
		{ReasonPinDamaged, "a pin record cannot be read, so garbage collection is disabled"},
		{ReasonPortRefused, "no server in the guest listens on `port`"},
		{ReasonPortTimeout, "the guest did not accept a connection to `port` in time"},
		{ReasonPortsBusy, "too many connections from outside are open in the guest"},
		{ReasonProgramFailed, "the command for the new snapshot failed; no snapshot was made"},
		{ReasonProgramTimeout, "the command for the new snapshot reached its time limit; no snapshot was made"},
		{ReasonQuota, "a quota of the key is exhausted; details: `quota`"},
		{ReasonReceiptNotFound, "the receipt does not exist, or was deleted"},
		{ReasonRestoreRefused, "the VMM cannot restore the snapshot, because CPU or format differ"},
		{ReasonResumesBusy, "too many sandboxes are being resumed"},
		{ReasonSameTag, "the new snapshot has the same tag as the old one"},
		{ReasonSandboxBroken, "programs required to run commands were removed in the sandbox"},
		{ReasonSandboxEnded, "the sandbox was killed, or its VM has ended"},
		{ReasonSandboxFailed, "the sandbox's VM ended unexpectedly; the sandbox is listed as failed"},
		{ReasonSandboxBound, "the sandbox cannot move to another daemon, for the named reason"},
		{ReasonSandboxMoved, "another daemon has taken the sandbox; details: `sandbox`, `node`"},
		{ReasonSandboxUnsettled, "the sandbox is copied, and the other daemon has not said yet whether it has given it up; details: `sandbox`"},
		{ReasonSandboxPaused, "the sandbox is paused, or was paused during the request"},
		{ReasonSandboxRolledBack, "the sandbox was rolled back during the request"},
		{ReasonSecretNotFound, "the owner has no secret with that name; details: `secret`"},
		{ReasonSecretUnreadable, "the secret's file is damaged, or its value does not fit its use; details: `secret`"},
		{ReasonSecretsOff, "the daemon keeps no secrets, because it has no key for them"},
		{ReasonIdentityOff, "the daemon issues no identity tokens, because it has no issuer"},
		{ReasonSnapshotDamaged, "a file of the snapshot has changed, so the snapshot is disabled"},
		{ReasonSnapshotPartial, "the snapshot is used before all of it is here, and the request needs all of it"},
		{ReasonSnapshotNotFound, "no snapshot has that tag"},
		{ReasonSnapshotNotReady, "the snapshot is being written"},
		{ReasonSnapshotPinned, "the snapshot is pinned"},
		{ReasonStoreFull, "the store's file system is full; partial files were removed"},
		{ReasonTagTaken, "another snapshot has the tag"},
		{ReasonTainted, "the snapshot may contain the current value of a secret; details: `secret`"},
		{ReasonTransitionBusy, "too many requests are waiting for the sandbox, or for the tenant's sandboxes"},
		{ReasonTransitionSlow, "the sandbox is still being paused, resumed or branched after the maximum wait"},
		{ReasonUnsigned, "the operator requires a signature that the snapshot does not have"},
		{ReasonVolumeExists, "the owner has a volume with that name"},
		{ReasonVolumeHeld, "a sandbox has the volume"},
		{ReasonVolumeMode, "the way of using a volume is not supported"},
		{ReasonVolumeNotFound, "the owner has no volume with that name"},
		{ReasonVolumeOther, "the snapshot was taken without the sandbox's volumes, or with others"},
		{ReasonVolumePath, "a volume cannot be mounted on that path"},
		{ReasonVolumePrivate, "a private volume can be in one sandbox only"},
		{ReasonVolumeSlots, "the snapshot's guest has no free slot for a volume, or its agent cannot mount one"},
		{ReasonWaitForChildren, "the request asks for children without waiting for their snapshot"},
		{ReasonWarmUpFailed, "the warm-up failed, or a service was not ready in time"},
		{ReasonGuestFilesElsewhere, "the path is outside the daemon's directories for guest files"},
		{ReasonGuestFilesOff, "the daemon does not open files by path by default"},
		{ReasonSocketForeign, "the daemon's socket belongs to another user, and the daemon has no token"},
		{ReasonScopeMissing, "the key lacks the scope; details: `scope`"},
		{ReasonTokenUnwanted, "the request has a token, but the daemon has none"},
		{ReasonVerifyFailed, "the snapshot's files could not be verified"},
		{ReasonAgentLinks, "the sandbox's agent is of an older forkd and does not support links"},
		{ReasonGuestDirectoryMissing, "the target directory does not exist in the sandbox"},
		{ReasonLocalDirectoryMissing, "the target directory does not exist on this host"},
		{ReasonMaybeDone, "the connection broke before the response to a modifying request"},
		{ReasonTLSClientCertificate, "the daemon requires a client certificate; it is missing or was rejected"},
		{ReasonTLSScheme, "the URL scheme is https but the daemon has no TLS, or http but it has"},
		{ReasonTLSUntrusted, "the daemon's certificate differs from the pinned one, or its authority is not trusted here"},
	}
}
