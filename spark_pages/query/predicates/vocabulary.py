"""Which nodes of sqlglot's trees are understood here, and which arguments of each. Pure.

sqlglot parses far more than any translation of its trees handles: what it puts into an argument that nobody
reads would be left out silently, and the statement would mean something else. So each tree is walked once,
before it is used, and must consist of nodes and arguments of a vocabulary: one for queries, one for each
statement of DDL, one for filters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from sqlglot import exp

# The functions that a query may call: those whose result depends on their arguments alone. Pure.
#
# DuckDB has others, which read the clock, settings, variables, other sessions or files, draw random numbers,
# or wait. A function that a later release of DuckDB adds is refused until it is listed here.

_NAMES = """
    age all ifnull some
    abs acos acosh aggregate any_value apply approx_count_distinct approx_quantile approx_top_k
    arbitrary arg_max arg_max_null arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last argmax
    argmin array_agg array_aggr array_aggregate array_append array_apply array_cat array_concat
    array_contains array_cosine_distance array_cosine_similarity array_cross_product array_distance
    array_distinct array_dot_product array_extract array_filter array_has array_has_all array_has_any
    array_indexof array_inner_product array_intersect array_length array_negative_dot_product
    array_negative_inner_product array_pop_back array_pop_front array_position array_prepend
    array_push_back array_push_front array_reduce array_resize array_reverse array_reverse_sort
    array_select array_slice array_sort array_to_json array_to_string array_transform array_unique
    array_value array_where array_zip ascii asin asinh atan atan2 atanh avg bar base64 bin bit_and
    bit_count bit_length bit_or bit_position bit_xor bitstring bitstring_agg bool_and bool_or
    cardinality cbrt ceil ceiling century char_length character_length chr coalesce concat concat_ws
    contains corr cos cosh cot count count_if count_star countif covar_pop covar_samp cume_dist
    damerau_levenshtein date_add date_diff date_part date_sub date_trunc datediff datepart datesub
    datetrunc day dayname dayofmonth dayofweek dayofyear days_in_month decade decode degrees dense_rank
    editdist3 element_at encode ends_with entropy enum_code enum_first enum_last enum_range
    enum_range_boundary epoch epoch_ms epoch_ns epoch_us era even exp factorial favg fdiv fill filter
    first first_value flatten floor fmod format format_bytes formatreadabledecimalsize
    formatreadablesize from_base64 from_binary from_hex from_json from_json_strict fsum gamma gcd
    generate_series geomean geometric_mean get_bit grade_up greatest greatest_common_divisor
    group_concat grouping grouping_id hamming hash hex histogram histogram_exact hour if instr isfinite
    isinf isnan isodow isoyear jaccard jaro_similarity jaro_winkler_similarity json json_array
    json_array_length json_contains json_deep_merge json_exists json_extract json_extract_path
    json_extract_path_text json_extract_string json_group_array json_group_object json_group_structure
    json_insert json_keys json_merge_patch json_merge_patch_diff json_normalize json_object json_pretty
    json_quote json_remove json_replace json_set json_strip_nulls json_structure json_transform
    json_transform_strict json_type json_valid json_value julian kahan_sum kurtosis kurtosis_pop lag
    last last_day last_value lcase lcm lead least least_common_multiple left left_grapheme len length
    length_grapheme levenshtein lgamma list list_aggr list_aggregate list_any_value list_append
    list_apply list_approx_count_distinct list_avg list_bit_and list_bit_or list_bit_xor list_bool_and
    list_bool_or list_cat list_concat list_contains list_cosine_distance list_cosine_similarity
    list_count list_distance list_distinct list_dot_product list_element list_entropy list_extract
    list_filter list_first list_grade_up list_has list_has_all list_has_any list_histogram list_indexof
    list_inner_product list_intersect list_kurtosis list_kurtosis_pop list_last list_mad list_max
    list_median list_min list_mode list_negative_dot_product list_negative_inner_product list_pack
    list_position list_prepend list_product list_reduce list_resize list_reverse list_reverse_sort
    list_select list_sem list_skewness list_slice list_sort list_stddev_pop list_stddev_samp
    list_string_agg list_sum list_transform list_unique list_value list_var_pop list_var_samp list_where
    list_zip listagg ln log log10 log2 lower lpad ltrim lttb mad make_date make_time make_timestamp
    make_timestamp_ms make_timestamp_ns make_timestamptz map map_concat map_contains map_contains_entry
    map_contains_value map_entries map_extract map_extract_value map_from_entries map_keys map_values
    max max_by md5 md5_number md5_number_lower md5_number_upper mean median microsecond millennium
    millisecond min min_by minute mismatches mod mode month monthname nanosecond nextafter nfc_normalize
    nth_value ntile nullif octet_length ord overlay parse_dirname parse_dirpath parse_filename
    parse_formatted_bytes percent_rank percentile_cont percentile_disc pi position pow power prefix printf
    product quantile quantile_cont quantile_disc quarter radians range rank rank_dense reduce regexp_escape
    regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace
    regexp_split_to_array regexp_split_to_table regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right right_grapheme round round_even
    roundbankers row row_number row_to_json rpad rtrim second sem set_bit sha1 sha256 sign signbit sin
    sinh skewness split split_part sqrt starts_with stddev stddev_pop stddev_samp str_split
    str_split_regex strftime string_agg string_split string_split_regex string_to_array strip_accents
    strlen strpos strptime struct_concat struct_contains struct_extract struct_extract_at struct_has
    struct_indexof struct_insert struct_keys struct_pack struct_position struct_update struct_values
    substr substring substring_grapheme suffix sum sumkahan switch tan tanh time_bucket timezone
    timezone_hour timezone_minute to_base to_base64 to_binary to_centuries to_days to_decades to_hex
    to_hours to_json to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters
    to_seconds to_timestamp to_weeks to_years translate trim trunc try_strptime typeof ucase unbin unhex
    unicode union_extract union_tag union_value unnest upper url_decode url_encode
    uuid_extract_timestamp uuid_extract_version var_pop var_samp variance wavg week weekday weekofyear
    weighted_avg xor year yearweek
"""

FUNCTIONS = frozenset(_NAMES.split()) | {"+"}
"""Scalar, aggregate, window and table functions of DuckDB, in lower case; and the plus before a value."""

BY_NAME = frozenset({"aggregate", "array_aggr", "array_aggregate", "list_aggr", "list_aggregate"})
"""Functions that call the one which their second argument names."""

ELSEWHERE: Mapping[str, str] = {
    "add_months": "date_add(day, INTERVAL 1 MONTH)",
    "charindex": "strpos",
    "dateadd": "date_add(day, INTERVAL 1 DAY)",
    "explode": "unnest",
    "get_json_object": "json_extract_string",
    "iif": "if",
    "isnull": "IS NULL",
    "nvl": "coalesce",
    "nvl2": "if(a IS NOT NULL, b, c)",
    "regexp_like": "regexp_matches",
    "rlike": "regexp_matches",
    "to_char": "strftime",
    "to_date": "CAST(… AS DATE)",
    "zeroifnull": "coalesce",
}
"""What functions of other systems are called by DuckDB."""

FEWEST_ARGUMENTS: Mapping[str, int] = {"age": 2}
"""Of functions that read the clock where they are given fewer."""


Vocabulary: TypeAlias = Mapping[type[exp.Expr], Mapping[str, tuple[type[exp.Expr], ...]]]
"""The arguments of each node, and the nodes that each may hold; none are named where it may hold any."""

DEEPEST = 250
"""Levels of a tree, beside chains of AND and OR: translations work by recursion."""

Refusal: TypeAlias = Callable[[exp.Expr, str | None], Exception]
"""Makes the error for a node; the text says what about it is not understood, None that it is the node."""

_WORD = re.compile(r"[\w.]+")

_CHAINS = (exp.And, exp.Or)


def vocabulary(**nodes: str) -> dict[type[exp.Expr], Mapping[str, tuple[type[exp.Expr], ...]]]:
    """Nodes by the names of their classes, each with its arguments.

    An argument may be followed by ``:`` and the nodes that it may hold, with ``|`` between them; ``!`` stands
    for a name.
    """
    return {getattr(exp, name): dict(map(_argument, arguments.split())) for name, arguments in nodes.items()}


def _argument(text: str) -> tuple[str, tuple[type[exp.Expr], ...]]:
    name, _, held = text.replace("!", ":Identifier").partition(":")
    return name, tuple(getattr(exp, each) for each in held.split("|") if each)


def check(tree: exp.Expr, known: Vocabulary, refused: Refusal) -> None:
    """Raise the refusal of the first node, or argument of a node, that is not in the vocabulary.

    Notes
    -----
    Iterative: trees are as deep as chains of conditions are long.
    """
    left: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while left:
        node, depth = left.pop()
        arguments = known.get(type(node))
        if arguments is None or (isinstance(node, exp.Anonymous) and not _is_pure(node)):
            raise refused(node, None)
        if isinstance(node, exp.Var) and _WORD.fullmatch(node.name) is None:
            raise refused(node, None)  # it is written without quotes
        if depth > DEEPEST:
            raise refused(node, f"nesting of more than {DEEPEST} levels")
        for key, value in node.args.items():
            if value is None or value is False or value == []:
                continue
            if key not in arguments:
                raise refused(node, f"{_words(node)} with {_words(key)}")
            held = arguments[key]
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, exp.Expr):
                    if held and not isinstance(child, held):
                        raise refused(child, None)
                    chained = type(child) is type(node) and isinstance(child, _CHAINS)
                    left.append((child, depth if chained else depth + 1))
                elif isinstance(child, list):
                    raise refused(node, f"{_words(node)} with {_words(key)}")


def _is_pure(call: exp.Anonymous) -> bool:
    name, given = call.name.lower(), call.expressions
    if name in BY_NAME and not (
        len(given) > 1
        and isinstance(given[1], exp.Literal)
        and given[1].is_string
        and given[1].name.lower() in FUNCTIONS
    ):
        return False
    return name in FUNCTIONS and len(given) >= FEWEST_ARGUMENTS.get(name, 0)


def _words(what: exp.Expr | str) -> str:
    """Return the SQL name of a node or argument."""
    name = what if isinstance(what, str) else what.key
    return name.strip("_").replace("_", " ").upper()
