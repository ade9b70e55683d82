<?php
// Sums up what the jobs of count_words found; see fan_out.php, which begins it all.
//
// The parts of a text meet in $ctx, so there is one context, and it lives for a while after the
// last job. What must survive a restart of the queue belongs into a database instead.
//
// windlass: contexts=1 idle=1h

// windlass: before
$ctx->found = [];

// windlass: body
$part = json_decode($payload, true);
$run = $part['run'];
// A part that comes twice counts once.
$ctx->found[$run][$part['number']] = $part['words'];
if (count($ctx->found[$run]) < $part['of']) {
    return;
}
$words = array_sum($ctx->found[$run]);
unset($ctx->found[$run]);
echo "$words words in {$part['of']} parts\n";
return ['data' => ['run' => $run, 'words' => $words]];
