-- What would a gateway want to know? Minute by minute, of every EP group that reports.
-- Parameters: start_ms and end_ms (Unix ms, end excluded).
-- service, ep_group           who
-- role                        prefill, decode or mixed
-- host, instance              of a front end; empty where none reports
-- time_ms                     start of the minute, Unix ms
-- newest_ms                   end of its newest window, Unix ms
-- windows                     ends of windows, each once over all processes
-- processes                   that reported, restarts counted once
-- looked_up, found, partial   prompt tokens: looked up, found, found of prompts that were found in part
-- prefill, decode             tokens a second; null where nobody said, as in all columns below
-- kda_free, kda_limit         KDA state slots
-- mla_free, mla_limit         MLA KV cache blocks
-- running, waiting            requests
-- finished, good_tokens       requests that finished, and good tokens
-- rank_seconds                time that the ranks ran
SELECT
    routing_signals.service AS service,
    routing_signals.ep_group AS ep_group,
    toString(routing_signals.role) AS role,
    toString(frontend_host) AS host,
    frontend_instance AS instance,
    toInt64(toUnixTimestamp(routing_signals.time)) * 1000 AS time_ms,
    toUnixTimestamp64Milli(newest_window) AS newest_ms,
    routing_signals.windows AS windows,
    routing_signals.processes AS processes,
    prompt_tokens AS looked_up,
    round(prefix_hit_ratio * prompt_tokens) AS found,
    round(prefix_partial_hit_ratio * prompt_tokens) AS partial,
    prefill_tokens_per_second AS prefill,
    decode_tokens_per_second AS decode,
    kda_slots_free AS kda_free,
    kda_slots_limit AS kda_limit,
    mla_blocks_free AS mla_free,
    mla_blocks_limit AS mla_limit,
    requests_running AS running,
    requests_waiting AS waiting,
    requests_finished AS finished,
    routing_signals.good_tokens AS good_tokens,
    routing_signals.rank_seconds AS rank_seconds
FROM routing_signals
WHERE routing_signals.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND routing_signals.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
ORDER BY service, ep_group, time_ms
