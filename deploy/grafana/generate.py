#!/usr/bin/env python3
"""Writes dashboards/*.json by Grafana's own builders (pip install grafana-foundation-sdk, in the version that
tests/deploy/requirements.txt names). The panels are below; run this after a change, a test compares.

Expressions write a selector as `metric{}`: the job of the dashboard's variable is put into the braces."""

import json
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as models
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync, DashboardLinkType, DataSourceRef, Threshold, ThresholdsMode, ValueMap, ValueMappingResult,
    VariableOption, VariableRefresh, VariableSort)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode, HeatmapColorScale
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER = Path(__file__).parent / "dashboards"
COLUMNS = 24
DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
TTFT_LATE = "moestro_time_to_first_token_late_total"
INTER_TOKEN_LATE = "moestro_inter_token_late_total"
SERVER_ERROR = 'finish_reason=~"internal|unavailable|aborted"'
TTFT, INTER_TOKEN = "moestro_time_to_first_token_seconds", "moestro_inter_token_latency_seconds"


# Expressions ---------------------------------------------------------------------------------------------------------

def with_job(expr):
    return expr.replace("{}", '{job="$job"}').replace("{,", '{job="$job",')


def rate(metric, by="", labels=""):
    """Per second, summed over all series except those of the labels `by`."""
    total = f"sum by ({by})" if by else "sum"
    return f"{total} (rate({metric}{{{',' + labels if labels else ''}}}[$__rate_interval]))"


def quantile(q, metric, by=""):
    return f"histogram_quantile({q}, {rate(metric + '_bucket', 'le, ' + by if by else 'le')})"


def share(part, whole):
    return f"{rate(part)} / {rate(whole)}"


def mean(histogram):
    return share(histogram + "_sum", histogram + "_count")


def share_in_time(histogram, late):
    """Of the dashboard's whole time range."""
    return f"1 - sum(increase({late}{{}}[$__range])) / sum(increase({histogram}_count{{}}[$__range]))"


# Panels --------------------------------------------------------------------------------------------------------------

def panel(builder, title, queries, unit, width, height, description, query_format=PromQueryFormat.TIME_SERIES):
    for number, (legend, expr) in enumerate(queries.items()):
        builder.with_target(prometheus.Dataquery().ref_id(chr(ord("A") + number)).datasource(DATASOURCE)
                            .expr(with_job(expr)).legend_format(legend).format(query_format))
    return (builder.title(title).description(description).datasource(DATASOURCE).unit(unit)
            .span(width).height(height))


def lines(title, queries, unit="short", description="", width=8, stacked=False, most=None):
    builder = (timeseries.Panel().line_width(1).fill_opacity(30 if stacked else 8).min(0)
               .show_points(models.VisibilityMode.NEVER)
               .stacking(common.StackingConfig().group("A").mode(
                   models.StackingMode.NORMAL if stacked else models.StackingMode.NONE))
               .legend(common.VizLegendOptions().show_legend(True).display_mode(models.LegendDisplayMode.LIST)
                       .placement(models.LegendPlacement.BOTTOM))
               .tooltip(common.VizTooltipOptions().mode(models.TooltipDisplayMode.MULTI)
                        .sort(models.SortOrder.DESCENDING)))
    if most is not None:
        builder.max(most)
    return panel(builder, title, queries, unit, width, 8, description)


def tile(title, expr, unit="short", description="", steps=((None, "text"),), decimals=None, names=None):
    """One number. steps: (from this value on, colour), the first from None. names: text for values."""
    builder = (stat.Panel().color_mode(models.BigValueColorMode.VALUE).graph_mode(models.BigValueGraphMode.NONE)
               .text_mode(models.BigValueTextMode.VALUE)
               .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
               .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE)
                           .steps([Threshold(value=value, color=color) for value, color in steps]))
               .mappings([ValueMap(options={str(value): ValueMappingResult(text=text) for value, text in names.items()})]
                         if names else []))
    if decimals is not None:
        builder.decimals(decimals)
    return panel(builder, title, {"": expr}, unit, 4, 4, description)


def heat_map(title, histogram, unit, description="", width=12):
    queries = {"{{le}}": f"sum by (le) (increase({histogram}_bucket{{}}[$__rate_interval]))"}
    color = (heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges")
             .scale(HeatmapColorScale.EXPONENTIAL).exponent(0.5).steps(64))
    builder = (heatmap.Panel().calculate(False).cell_gap(1).y_axis(heatmap.YAxisConfig().unit(unit)).color(color)
               .mode(models.TooltipDisplayMode.SINGLE).show_y_histogram().show_legend()
               .filter_values(heatmap.FilterValueRange().le(1e-9)))
    return panel(builder, title, queries, unit, width, 8, description, PromQueryFormat.HEATMAP)


def quantiles(title, histogram, by="", description="", width=8, unit="s"):
    suffix = f" {{{{{by}}}}}" if by else ""
    queries = {f"p{round(q * 100)}{suffix}": quantile(q, histogram, by) for q in (0.5, 0.95)}
    return lines(title, queries, unit, description, width)


DEVICE_SHARE = ("sum by (device) (moestro_prefill_device_share{})"
                " / on () group_left () sum(moestro_prefill_device_share{})")
GOOD_SHARE = ((None, "red"), (0.95, "green"))
YES_NO = {0: "no", 1: "yes"}
IS_YES = ((None, "red"), (1, "green"))

DASHBOARDS = {
    "serving": ("Serving", [
        tile("First token in time", share_in_time(TTFT, TTFT_LATE), "percentunit",
             "Of the time range's requests that got a first token: within 30 s, or twice the forecast. Objective: 95 %.",
             GOOD_SHARE, 1),
        tile("Next token in time", share_in_time(INTER_TOKEN, INTER_TOKEN_LATE), "percentunit",
             "Of the gaps between tokens in the time range: within 0.05 s, or twice a full batch's step. "
             "Objective: 95 %.", GOOD_SHARE, 1),
        tile("All roles serve", "min(moestro_role_up{})", names=YES_NO, steps=IS_YES,
             description="As the router sees prefill, decode and the weight store."),
        tile("Running", "sum(moestro_requests_running{})", description="Requests that hold KV pages."),
        tile("Waiting", "sum(moestro_requests_waiting{})", description="Requests that wait for KV pages.",
             steps=((None, "green"), (1, "orange"), (64, "red"))),
        tile("Server errors", f"sum(increase(moestro_requests_total{{,{SERVER_ERROR}}}[$__range]))",
             description="Requests of the time range that ended with internal, unavailable or aborted.",
             steps=((None, "green"), (1, "red")), decimals=0),
        heat_map("Time to first token", TTFT, "s"),
        heat_map("Between two tokens", INTER_TOKEN, "s"),
        quantiles("Time to first token, by path", TTFT, "path",
                  "chunked: in decode's steps; split: in prefill, beside decode; whole_machine: prefill on all cores."),
        quantiles("Between two tokens", INTER_TOKEN),
        lines("Where a request's time goes, mean", {
            "queue": mean("moestro_request_queue_seconds"), "prefill": mean("moestro_request_prefill_seconds"),
            "decode": mean("moestro_request_decode_seconds")}, "s", stacked=True),
        lines("Requests", {"running": "sum(moestro_requests_running{})", "waiting": "sum(moestro_requests_waiting{})"}),
        lines("Requests ended, by outcome", {"{{finish_reason}}": rate("moestro_requests_total", "finish_reason")},
              "reqps"),
        lines("Clients that read too slowly", {"{{reason}}": rate("moestro_slow_clients_total", "reason")}, "reqps",
              "Calls that the router ended. stalled: no reply was read for write-stall-seconds; behind: too many "
              "replies waited."),
        quantiles("Predicted paths: time over prediction", "moestro_path_prediction_ratio", "way",
                  "Time to the first token over what was predicted when the way was chosen; 1: as predicted.",
                  unit="short"),
        lines("Predicted paths: correction", {
            "{{way}}": "max by (way) (moestro_path_prediction_correction{})"}, "short",
            "What predictions are multiplied with, by what prompts took. 0.25 and 4 are the bounds."),
        lines("Paths taken", {"{{path}}": rate("moestro_request_path_total", "path")}, "reqps"),
        lines("Goodput", {
            "tokens in time": f"{rate(INTER_TOKEN + '_count')} - {rate(INTER_TOKEN_LATE)}",
            "all tokens but the first": rate(INTER_TOKEN + "_count")}, "short",
            "Generated tokens per second: those that met the target, and all. A request's first token counts as its TTFT."),
        lines("Tokens per second", {
            "prompt": rate("moestro_prompt_tokens_total"),
            "of these cached": rate("moestro_prompt_tokens_cached_total"),
            "generated": rate("moestro_generation_tokens_total")}),
        lines("Interrupted requests that resumed", {
            # The first counter includes the second; between two scrapes they may be inconsistent.
            "a role died": f"clamp_min({rate('moestro_request_resumed_total')}"
                           f" - {rate('moestro_request_preempted_total')}, 0)",
            "preempted": rate("moestro_request_preempted_total")}, "reqps"),
        lines("Tokens per second, by key", {"{{tenant}}, {{kind}}": rate("moestro_tenant_tokens_total", "tenant, kind")},
              description="anonymous: the router needs no key; operator: over the node's unix socket."),
        lines("Requests, by key", {
            "{{tenant}}, running": "sum by (tenant) (moestro_tenant_requests_running{})",
            "{{tenant}}, waiting": "sum by (tenant) (moestro_tenant_requests_waiting{})",
            "keys in use": "max(moestro_access_keys{})"}),
        lines("Refused", {
            "{{tenant}}, {{limit}}": rate("moestro_tenant_refused_total", "tenant, limit"),
            "key {{reason}}": rate("moestro_access_refused_total", "reason"),
            "file of keys has an error": rate("moestro_access_reloads_failed_total")}, "reqps",
              "For a limit of a key, or because of the key."),
        lines("HTTP requests, by endpoint", {"{{endpoint}}": rate("moestro_http_requests_total", "endpoint")}, "reqps",
              "Requests that have ended."),
        lines("HTTP requests, by status", {"{{status}}": rate("moestro_http_requests_total", "status")}, "reqps",
              "closed: the client left before the end of its answer."),
        lines("HTTP connections", {
            "open": "sum(moestro_http_connections{})", "streams": "sum(moestro_http_streams{})",
            "refused per second": rate("moestro_http_connections_refused_total"),
            "handshakes failed per second, {{reason}}": rate("moestro_http_handshakes_failed_total", "reason")},
              description="Refused: more than http-connections. Handshakes are those of TLS."),
        lines("HTTP bytes per second", {
            "received": rate("moestro_http_received_bytes_total"), "sent": rate("moestro_http_sent_bytes_total")}, "Bps",
              "Without the overhead of TLS."),
        lines("The router's own time, HTTP", {
            "request, p50": quantile(0.5, "moestro_http_request_overhead_seconds"),
            "request, p99": quantile(0.99, "moestro_http_request_overhead_seconds"),
            "token, p50": quantile(0.5, "moestro_http_token_overhead_seconds"),
            "token, p99": quantile(0.99, "moestro_http_token_overhead_seconds")}, "s",
              "Request: from its last byte to the call of decode, without the time in the line. Token: from decode to the "
              "client's socket; a client that reads slowly counts here. Should stay below 1 ms."),
        lines("TLS certificate", {
            "valid for": "clamp_min(min(moestro_tls_certificate_expires_seconds{}) - time(), 0)",
            "files with an error per second": rate("moestro_tls_reloads_failed_total")}, "s",
              "The time until the certificate in use expires; 0 without TLS."),
        lines("Batches", {
            "unfinished": "sum(moestro_batches_unfinished{})",
            "ended per second, {{status}}": rate("moestro_batches_total", "status")},
              description="Of /v1/batches; each key's run one after the other."),
        lines("Requests of batches", {
            "without a result, in running batches": "sum(moestro_batch_requests_open{})",
            "per second, {{result}}": rate("moestro_batch_requests_total", "result")}),
        lines("Files of batches", {"on disk": "sum(moestro_batch_files_bytes{})"}, "bytes",
              "In batch-dir of the router: uploads and results, until they are deleted."),
        heat_map("Prompt tokens of a request", "moestro_request_prompt_tokens", "short"),
        heat_map("Tokens generated for a request", "moestro_request_generation_tokens", "short"),
    ]),
    "engine": ("Engine", [
        lines("Roles that serve", {"{{peer}}": "min by (peer) (moestro_role_up{})"}, most=1),
        lines("Calls between processes and from clients, mean", {
            "{{method}}": f"{rate('moestro_rpc_seconds_sum', 'method')} / {rate('moestro_rpc_seconds_count', 'method')}"},
              "s", "From a call's arrival to its end; a session of decode lasts as long as its request."),
        lines("Calls that failed", {"{{method}}": rate("moestro_rpc_failed_total", "method")}, "reqps",
              "Includes calls that their caller cancels."),
        quantiles("Step time", "moestro_decode_step_seconds",
                  description="A forward pass over the batch; itl-bound-ms bounds it while sequences generate."),
        lines("Sequences in a step, mean", {
            "all": mean("moestro_decode_step_sequences"), "that generate": mean("moestro_decode_step_decode_rows"),
            "in the batch now": "sum(moestro_decode_batch_size{})"}),
        lines("Prompt tokens in a step", {
            "mean": mean("moestro_decode_step_prompt_rows"), "room for": "sum(moestro_decode_chunk_tokens{})"}),
        lines("Decode, tokens per second", {
            "generated": rate("moestro_decode_tokens_total"), "of prompts": rate("moestro_decode_prompt_tokens_total"),
            "steps": rate("moestro_decode_steps_total"),
            "steps of two alternating batches": rate("moestro_decode_overlapped_steps_total")}),
        lines("Sequences that wait", {
            "for a place in the batch": "sum(moestro_decode_sequences_waiting{})",
            "for KV pages": "sum(moestro_decode_sequences_waiting_for_pages{})"}),
        lines("KV pages", {
            "held by requests": "sum(moestro_kv_pages{} - moestro_kv_pages_free{} - moestro_kv_pages_draining{})",
            "draining": "sum(moestro_kv_pages_draining{})", "cached": "sum(moestro_kv_pages_cached{})",
            "empty": "sum(moestro_kv_pages_free{} - moestro_kv_pages_cached{} - moestro_kv_pages_without_memory{})",
            "without memory yet": "sum(moestro_kv_pages_without_memory{})"}, stacked=True),
        lines("KV usage", {"usage": "max(moestro_kv_usage_ratio{})"}, "percentunit", most=1),
        lines("KV leases", {"held": "sum(moestro_kv_leases{})"}),
        lines("Prefix cache hit ratio", {
            "of tokens": share("moestro_prefix_cache_hit_tokens_total", "moestro_prefix_cache_queried_tokens_total")},
            "percentunit", most=1),
        lines("KV pressure", {
            "preemptions": rate("moestro_kv_preemptions_total"),
            "leases timed out": rate("moestro_kv_lease_timeouts_total"),
            "cached pages evicted": rate("moestro_prefix_cache_evicted_pages_total")}, "ops"),
        lines("Experts on decode's device, per second", {
            "found there": rate("moestro_decode_expert_cache_hits_total"),
            "not there": rate("moestro_decode_expert_cache_misses_total"),
            "computed there": rate("moestro_decode_experts_on_device_total"),
            "computed near the data": rate("moestro_decode_experts_near_data_total"),
            "loaded": rate("moestro_decode_expert_loads_total"),
            "loaded ahead": rate("moestro_decode_expert_loads_ahead_total"),
            "loaded ahead and used": rate("moestro_decode_foreseen_expert_hits_total")}, "ops"),
        lines("Routed experts, time over plan", {
            "measured over planned": f"{rate('moestro_decode_expert_measured_seconds_total')}"
                                     f" / {rate('moestro_decode_expert_planned_seconds_total')}"}, "short",
            "With an expert cache. 1: layers take what the costs measured at the start say; far from it, a restart "
            "measures them again."),
        lines("Streamed batches: busy share of each resource", {
            "{{resource}}": f"{rate('moestro_decode_batch_busy_seconds_total', by='resource')}"
                            f" / ignoring(resource) group_left {rate('moestro_decode_batch_seconds_total')}"},
            "percentunit", "decode --mode throughput with a device. The busiest one bounds a step.", most=1),
        lines("Streamed batches: time over forecast", {
            "measured over forecast": f"{rate('moestro_decode_batch_seconds_total')}"
                                      f" / {rate('moestro_decode_batch_forecast_seconds_total')}"}, "short",
            "1: steps take what the costs measured at the start say; far from it, a restart measures them again."),
        lines("Streamed batches: micro-batches of a step, mean", {
            "micro-batches": f"{rate('moestro_decode_batch_micro_batches_total')}"
                             f" / {rate('moestro_decode_batch_steps_total')}"}, "short"),
        lines("Streamed batches: weights to the device", {
            "per second": rate("moestro_decode_batch_streamed_bytes_total")}, "Bps"),
        lines("Streamed batches: experts that stay on the device", {
            "of all": "moestro_decode_batch_resident_ratio{}"}, "percentunit", most=1),
        lines("Waiting for decode's device, share of the clock", {
            "lent to prefill": rate("moestro_decode_device_wait_seconds_total")}, "percentunit",
            "Until prefill returns it, which takes at most a layer."),
        lines("Masks of constraints, seconds per second", {
            "sequences without a row": rate("moestro_decode_mask_wait_seconds_total"),
            "finding masks": rate("moestro_decode_mask_seconds_total")}, "short",
            "A sequence whose mask is not found when its logits come has no row until then. Steps do not wait."),
        lines("Worker threads", {
            "decode": "sum(moestro_decode_workers{})", "prefill": "sum(moestro_prefill_workers{})"}, description=
              "Of the last step or prompt. A role that computes alone has all cores; else each has its own."),
        lines("Prefill, tokens per second", {"computed": rate("moestro_prefill_tokens_total")}),
        lines("Prefill, prompts", {
            "computed": "sum(moestro_prefill_running{})", "waiting": "sum(moestro_prefill_waiting{})"}),
        quantiles("Prefill, time of a prompt", "moestro_prefill_seconds"),
        quantiles("Prefill, waiting for its turn", "moestro_prefill_queue_seconds"),
    ]),
    "streaming": ("Streaming", [
        lines("Weights copied to the device", {
            "all": rate("moestro_prefill_streamed_bytes_total"),
            "staged": rate("moestro_prefill_staged_bytes_total"),
            "pageable": rate("moestro_prefill_pageable_bytes_total")}, "Bps",
            "Of prompts that stream through a device (device of prefill). Staged: through pinned buffers, because the "
            "weights are not pinned. Pageable: the driver copies them once more, which is slow."),
        lines("Share of the time that the device waited", {
            "stalled": share("moestro_prefill_stream_stall_seconds_total", "moestro_prefill_stream_seconds_total")},
            "percentunit", "Of the time of streamed prompts; near 1, the copies are the limit.", most=1),
        lines("Expert ring", {"experts of a layer that fit": "max(moestro_prefill_ring_slots{})"}, "short",
              "Of each device; 0: no prompt is streamed."),
        lines("Weights registered for fast copies", {"bytes": "max(moestro_prefill_registered_weight_bytes{})"}, "bytes",
              "With the device that has fewest. The rest is copied more slowly."),
        lines("Expert ring in use", {"most slots at once": "max(moestro_prefill_ring_occupancy_ratio{})"},
              "percentunit", "Of the last streamed prompt.", most=1),
        lines("Between devices that share a prompt", {"sent": rate("moestro_prefill_link_bytes_total")}, "Bps",
              "Of prompts on several devices (devices of prefill)."),
        lines("Shares of a prompt", {"{{device}}": DEVICE_SHARE}, "percentunit",
              "Of the devices that share each long prompt (device-shares of prefill); those that are not open have none.",
              most=1),
        lines("Exchanges between devices", {"from device to device": "max(moestro_prefill_peer_exchange{})"}, "short",
              "1: devices copy from each other's memory (device-exchange of prefill); 0: through the host's memory, or "
              "one device."),
        lines("Exchanges between devices, share of the time", {
            "under way": share("moestro_prefill_exchange_seconds_total", "moestro_prefill_stream_seconds_total"),
            "waited for": share("moestro_prefill_exchange_wait_seconds_total", "moestro_prefill_stream_seconds_total")},
            "percentunit", "Of the time of streamed prompts. Devices compute beside exchanges; what they wait is not "
            "hidden.", most=1),
        lines("Devices", {
            "that the settings name": "max(moestro_prefill_devices_named{})",
            "open": "max(moestro_prefill_devices_open{})",
            "of the last streamed prompt": "max(moestro_prefill_devices{})",
            "of decode": "max(moestro_decode_device{})",
            "lost, per second": rate("moestro_prefill_devices_lost_total"),
            "layers begun again, per second": rate("moestro_prefill_repeated_layers_total")}, "short",
            "Lost: failed, stalled or reclaimed during a prompt, which continued without them."),
        lines("Inputs of FP8 weights", {"rounded to FP8": "max(moestro_prefill_fp8_activations{})"}, "short",
              "1: streamed prompts round them, as such checkpoints are published (prefill-activations); 0: BF16."),
        lines("Time spent in streamed prompts", {"share of the clock": rate("moestro_prefill_stream_seconds_total")},
              "percentunit"),
        lines("Prompts", {
            "all": rate("moestro_prefill_requests_total"),
            "with the whole machine": rate("moestro_prefill_whole_machine_total"),
            "failed or cancelled": rate("moestro_prefill_failed_total")}, "reqps"),
        lines("Long prompts, by path", {"{{path}}": rate("moestro_request_path_total", "path", 'path!="chunked"')},
              "reqps"),
    ]),
    "memory": ("Weights and memory", [
        tile("Weights ready", "min(moestro_weights_ready{})", names=YES_NO, steps=IS_YES),
        tile("Loaded", "min(moestro_weights_load_progress_ratio{})", "percentunit", decimals=1,
             description="0 while memory is reserved, then the share of the weights in the segment."),
        tile("Load took", "max(moestro_weights_load_seconds{})", "s",
             description="0 if the segment was adopted from an earlier process."),
        tile("Segment", "sum(moestro_weights_segment_bytes{})", "bytes"),
        tile("Of it in huge pages", "sum(moestro_weights_huge_page_bytes{}) / sum(moestro_weights_segment_bytes{})",
             "percentunit", "When it was loaded; after an adoption only pages that have been touched count.",
             ((None, "orange"), (0.99, "green")), 1),
        tile("Attached", "sum(moestro_weights_attached{})", description="Processes that hold an attach lease."),
        lines("Load progress", {"loaded": "min(moestro_weights_load_progress_ratio{})"}, "percentunit", most=1),
        lines("Mapped weights", {"{{role}}": "sum by (role) (moestro_weights_attached_bytes{})"}, "bytes",
              "One copy, mapped by every role: do not add these."),
        lines("Private memory", {"{{role}}": "sum by (role) (moestro_process_private_bytes{})",
                                 "{{role}}, page tables": "sum by (role) (moestro_process_page_table_bytes{})"}, "bytes",
              "Excludes files and shared memory; includes page tables."),
    ]),
}


def variables():
    def query(name, label, expr):
        return (dashboard.QueryVariable(name).label(label).datasource(DATASOURCE)
                .query({"query": expr, "refId": name}).sort(VariableSort.ALPHABETICAL_ASC)
                .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED))
    return [dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
            # A node that still loads has no model name yet; All matches it.
            query("model", "Model", "label_values(moestro_requests_running, model_name)").include_all(True)
            .all_value(".*").current(VariableOption(text="All", value="$__all")),
            query("job", "Node", 'label_values(moestro_requests_running{model_name=~"$model"}, job)')]


def place(builders):
    """From left to right, in rows; all panels of a row have the same height."""
    x = y = height = 0
    for number, builder in enumerate(builders, start=1):
        position = builder.id(number).build().grid_pos
        if x + position.w > COLUMNS or (x > 0 and position.h != height):
            x, y = 0, y + height
        position.x, position.y, height = x, y, position.h
        x += position.w
    return builders


def build(name, title, panels):
    builder = (dashboard.Dashboard("moestro: " + title).uid("moestro-" + name).tags(["moestro"]).version(1).readonly()
               .timezone("browser").refresh("10s").tooltip(DashboardCursorSync.CROSSHAIR).time("now-30m", "now")
               .variables(variables()).annotations([])
               .link(dashboard.DashboardLink("moestro").type(DashboardLinkType.DASHBOARDS).tags(["moestro"])
                     .include_vars(True).keep_time(True)))
    for one in place(panels):
        builder.with_panel(one)
    return builder.build()


def generate():
    """File name -> its text."""
    return {f"{name}.json": json.dumps(build(name, title, panels), indent=1, cls=JSONEncoder) + "\n"
            for name, (title, panels) in DASHBOARDS.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in generate().items():
        (FOLDER / file).write_text(text)
